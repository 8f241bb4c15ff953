"""The new program's workers in an upgrade: they begin together, or not at all.

Each opens everything, and accepts nothing before every slot's worker has done so. If
one cannot, the upgrade fails: connections that another had accepted would be lost with
it. Until then the old program's workers accept, on the same sockets.
"""

import asyncio
from typing import Protocol

from cutthrough.process.channel import Commit, Prepared
from cutthrough.supervisor.children import Child, Slot

# How long a worker may take to start: 0.2 s here, much longer on a swapping machine.
START_S = 30.0


class Program(Protocol):
    """The part of the supervisor that is used here."""

    slots: list[Slot]

    @property
    def is_ending(self) -> bool: ...
    def kill(self, child: Child) -> None: ...


class StartGate:
    """`is_open`: workers begin as soon as they can."""

    def __init__(self, program: Program, is_open: bool) -> None:
        self._program = program
        self.is_open = is_open
        self._prepared: set[Child] = set()

    def on_spawn(self, child: Child, waits: bool) -> None:
        """A worker has been started. `waits`: for a Commit that is sent elsewhere."""
        if self.is_open and not waits:
            child.send(Commit(child.first_generation))
        self._limit(child)

    def on_prepared(self, child: Child, message: Prepared) -> None:
        if self.is_open or message.error or self._program.is_ending:
            return
        child.set_timer(None)                # it waits for the others
        self._prepared.add(child)
        workers = [slot.current for slot in self._program.slots]
        if all(worker in self._prepared for worker in workers):
            self.is_open = True
            for worker in self._prepared:
                worker.send(Commit(worker.first_generation))
                self._limit(worker)
            self._prepared.clear()

    def _limit(self, child: Child) -> None:
        """Kills it if it is not ready in time."""
        child.set_timer(asyncio.get_running_loop().call_later(
            START_S, self._program.kill, child))
