class OneWay:
    moved: int
    spliced: bool
    error: int
    allowance: int
    held: tuple[int, int | None]
    def __init__(
        self,
        source: int,
        sink: int,
        left: int = -1,
        may_splice: bool = True,
        allowance: int = ...,
        transport: int = 0,
    ) -> None: ...
    def run(self, readable: bool = True, writable: bool = True) -> str: ...
    def push(self, a: bytes, b: bytes) -> bool: ...
    def stop(self) -> None: ...
