import asyncio
from collections.abc import Callable

class Poller:
    epfd: int
    registered: int
    faults: int
    timers: int
    holds_loop: bool
    def attach(
        self,
        loop: asyncio.AbstractEventLoop,
        on_fault: Callable[[BaseException], None] | None = None,
    ) -> None: ...
    def detach(self) -> None: ...
    def drain(self) -> None: ...
