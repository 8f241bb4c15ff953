import asyncio

from cutthrough.activity.calls import Calls
from cutthrough.tape.observer import Capture

class Watcher:
    behind: Capture | None
    calls: Calls
    held: int
    def __init__(
        self, calls: Calls, worker: int, loop: asyncio.AbstractEventLoop
    ) -> None: ...
    def close(self) -> None: ...
