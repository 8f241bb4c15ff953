from collections.abc import Iterable

KNOWN: tuple[str, ...]

class HeadEdits:
    dropped: tuple[bytes, ...]
    lines: tuple[tuple[bytes | int, ...], ...]
    names_trace: bool
    ratio: float
    def __init__(self, dropped: Iterable[bytes],
                 lines: Iterable[Iterable[bytes | int]], ratio: float = 0) -> None: ...
