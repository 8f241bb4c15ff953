from typing import NamedTuple

class Row(NamedTuple):
    label: str
    status: int
    socks: int
    token: str
    tag: str
    fault: str
    meaning: str

TABLE: tuple[Row, ...]
NAMES: dict[str, int]
