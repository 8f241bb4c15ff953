"""Bodies on their way through a replay: a task's reads and writes."""

import asyncio
from typing import Protocol

PIECE = 32768                                # bytes that are written at a time


class Sluice(Protocol):
    """One body, on its way through here."""

    def take(self) -> bytes | None: ...
    def wait(self, waiter: "asyncio.Future[None]") -> None: ...
    def write(self, data: bytes) -> bool: ...
    def finish(self) -> None: ...


def frame(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def take(sluice: Sluice) -> bytes:
    """The next bytes; b"": the end."""
    while (piece := sluice.take()) is None:
        waiter = asyncio.get_running_loop().create_future()
        sluice.wait(waiter)
        await waiter
    return piece


async def write(sluice: Sluice, data: bytes, chunked: bool) -> None:
    for at in range(0, len(data), PIECE):
        piece = data[at:at + PIECE]
        if sluice.write(frame(piece) if chunked else piece):
            waiter = asyncio.get_running_loop().create_future()
            sluice.wait(waiter)
            await waiter


async def until_left() -> None:
    """Until the task is cancelled: the client has left, or a deadline of the session
    has passed."""
    await asyncio.get_running_loop().create_future()


async def comes(sluice: Sluice, most_s: float) -> bool:
    """Whether bytes, or the end, come within this time. They are not taken."""
    waiter = asyncio.get_running_loop().create_future()
    sluice.wait(waiter)
    done, _ = await asyncio.wait([waiter], timeout=most_s)
    waiter.cancel()
    return done != set()
