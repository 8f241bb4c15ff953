"""A body piece by piece through a filter that is an async generator.

    source ─> the generator ─> pieces, each within the budget

The budget is for each piece that the generator yields, without the time that it waits
for bytes. A generator that does not wait, such as one that yields line by line, is
interrupted for others after some pieces (R64).
"""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

from cutthrough.contained import call
from cutthrough.filters.calls import Calls
from cutthrough.filters.exchange import Ended
from cutthrough.filters.stage import Stage

# A piece is as much work as so many bytes: 16 us
WORK_OF_PIECE = 8192


class Pieces:
    """One filter of one body."""

    def __init__(self, run: Calls, stage: Stage, hook: str,
                 source: AsyncIterator[bytes]) -> None:
        self.run, self.stage, self.hook, self.source = run, stage, hook, source
        self.scope: asyncio.Timeout | None = None
        self.waited = 0.0
        self.has_read = False

    async def filtered(self) -> AsyncGenerator[bytes, None]:
        run, stage, tally = self.run, self.stage, self.run.chain.tally
        tally.calls += 1
        generator: AsyncGenerator[Any, None] = getattr(stage, self.hook)(
            run.flow, self.untimed_source())
        try:
            while True:
                try:
                    piece = await self.next_of(generator)
                except StopAsyncIteration:
                    break
                except Ended:
                    raise
                except Exception as error:      # the operator's code
                    if self.has_read or stage.on_fault == "refuse":
                        run.fail_for_good(stage, self.hook, error)
                    run.fail(stage, self.hook, error)
                    async for piece in self.source:
                        yield piece
                    return
                await run.settle(stage)
                if piece:
                    yield piece
                if tally.turn.spend(WORK_OF_PIECE):
                    await asyncio.sleep(0)
        finally:
            await self.close(generator)
        await run.settle(stage)

    async def close(self, generator: AsyncGenerator[Any, None]) -> None:
        """Closes a generator that is left in the middle, because some code of it runs
        then."""
        try:
            await self.run.within(self.stage.budget, call(generator.aclose))
        except Exception as error:      # the operator's code
            self.run.chain.tally.report(self.stage, self.hook, error)

    async def next_of(self, generator: AsyncGenerator[Any, None]) -> bytes:
        self.waited, began = 0.0, time.monotonic()
        self.run.at_work += 1
        try:
            async with asyncio.timeout(self.stage.budget) as self.scope:
                piece = await call(anext, generator)
        except TimeoutError as error:
            if self.scope is not None and self.scope.expired():
                raise
            raise RuntimeError("TimeoutError of its own") from error
        finally:
            self.run.at_work -= 1
        if time.monotonic() - began - self.waited > self.stage.budget:
            raise TimeoutError
        if not isinstance(piece, bytes):
            raise TypeError(f"yielded {type(piece).__name__}, not bytes")
        return piece

    async def untimed_source(self) -> AsyncIterator[bytes]:
        """The source; its time is not the filter's."""
        loop = asyncio.get_running_loop()
        while True:
            left = None
            if self.scope is not None and self.scope.when() is not None:
                left = (self.scope.when() or 0.0) - loop.time()
                self.scope.reschedule(None)
            began = time.monotonic()
            self.run.at_work -= 1
            try:
                piece = await anext(self.source)
            except StopAsyncIteration:
                return
            finally:
                self.run.at_work += 1
                self.waited += time.monotonic() - began
                if left is not None and self.scope is not None:
                    self.scope.reschedule(loop.time() + max(0.0, left))
            self.has_read = True
            yield piece
