from collections.abc import Iterable

KNOWN: tuple[str, ...]

class HeadEdits:
    dropped: tuple[bytes, ...]
    lines: tuple[tuple[bytes | int, ...], ...]
    def __init__(self, dropped: Iterable[bytes],
                 lines: Iterable[Iterable[bytes | int]]) -> None: ...
