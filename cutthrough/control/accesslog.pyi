import asyncio

from cutthrough.session.client import Journal

class AccessLog(Journal):
    dropped: int
    lines: int
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: str | int,
        format: str,
        worker: int = 0,
    ) -> None: ...
    def reopen(self) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
