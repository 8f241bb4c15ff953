import asyncio

from cutthrough.session.model.client import Journal

class AccessLog(Journal):
    lines: int
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        target: str | int,
        format: str,
        worker: int = 0,
        required: bool = True,
    ) -> None: ...
    @property
    def dropped(self) -> int: ...
    @property
    def remembered(self) -> int: ...
    def reopen(self) -> None: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...
