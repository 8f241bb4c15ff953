"""Capture, paused and begun again by an operator: the supervisor's side.

The switch is the program's: a worker that starts later is told, and a new program after
an upgrade captures. Rules stay as they are, and recordings go on.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from cutthrough.log.stderr import say
from cutthrough.process.channel import Message, PauseCapture
from cutthrough.supervisor.breakpoints import Answers
from cutthrough.supervisor.children import Child

Ask = Callable[[Callable[[int], Message], Sequence[Child], tuple[int, ...]],
               Awaitable[Answers]]


class Processes(Protocol):
    """The supervisor's children."""

    @property
    def children(self) -> Mapping[int, Child]: ...


class CaptureSwitch:
    def __init__(self, ask: Ask, processes: Processes) -> None:
        """`ask`: Inquiry.ask_workers."""
        self._ask = ask
        self._processes = processes
        self.paused = False

    async def pause(self, paused: bool, who: str) -> list[str]:
        """Waits until the workers heed it; returns the names of those that did not
        answer. `who`: for the log."""
        self.paused = paused
        say(f"capture: {'paused' if paused else 'begun again'} by {who}")
        query = await self._ask(
            lambda query: PauseCapture(query, paused),
            [child for child in self._processes.children.values() if child.ready], ())
        return query.unanswered

    def on_ready(self, child: Child) -> None:
        if child.ready and self.paused:
            child.send(PauseCapture(0, True))
