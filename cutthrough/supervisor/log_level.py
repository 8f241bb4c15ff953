"""The level of the workers' error log, changed by an operator: the supervisor's side.

The level is the program's. If a worker starts later, it gets the level; after an
upgrade the new program begins with `info`. Lines of the supervisor are never hidden:
operators' acts, reloads, ends of workers.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from cutthrough.log.errorlog import LEVELS, USUAL_LEVEL
from cutthrough.log.stderr import say
from cutthrough.process.channel import Message, SetLogLevel
from cutthrough.supervisor.breakpoints import Answers
from cutthrough.supervisor.children import Child

Ask = Callable[[Callable[[int], Message], Sequence[Child], tuple[int, ...]],
               Awaitable[Answers]]


class Processes(Protocol):
    """The supervisor's children."""

    @property
    def children(self) -> Mapping[int, Child]: ...


class LogLevel:
    levels = LEVELS

    def __init__(self, ask: Ask, processes: Processes) -> None:
        """`ask`: Inquiry.ask_workers."""
        self._ask = ask
        self._processes = processes
        self.level = USUAL_LEVEL

    async def set(self, level: str, who: str) -> list[str]:
        """Waits until the workers have it; returns the names of those that did not
        answer. `level`: one of errorlog.LEVELS; `who`: for the log."""
        self.level = level
        say(f"log level: {level} by {who}")
        query = await self._ask(
            lambda query: SetLogLevel(query, level),
            [child for child in self._processes.children.values() if child.ready], ())
        return query.unanswered

    def on_ready(self, child: Child) -> None:
        if child.ready and self.level != USUAL_LEVEL:
            child.send(SetLogLevel(0, self.level))
