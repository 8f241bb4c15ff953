from typing import Any

PAGE_BYTES: int
FIELDS: tuple[str, ...]

class Page:
    def __init__(self, memory: Any = None) -> None: ...
    def read(self) -> dict[str, int]: ...
