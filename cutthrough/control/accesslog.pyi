import asyncio
from typing import Literal

class AccessLog:
    dropped: int
    lines: int
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: str,
        format: Literal["squid", "json"],
        worker: int = 0,
    ) -> None: ...
    def reopen(self) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
