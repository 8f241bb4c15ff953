from typing import NamedTuple

class Row(NamedTuple):
    name: str
    moves: tuple[str, ...]
    timeout: str
    outcome: str

TABLE: tuple[Row, ...]

def is_allowed(state: str, new: str) -> bool: ...
