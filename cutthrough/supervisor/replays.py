"""Recordings, for operators: the workers' misses, when all ended exchanges are
written, and when a mode is in force."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from cutthrough.process.channel import ListReplays, Look, Message, Settle
from cutthrough.supervisor.breakpoints import Answers
from cutthrough.supervisor.capture_writer import CaptureWriter
from cutthrough.supervisor.children import Child

WRITER = "the writer of captured exchanges"

Ask = Callable[[Callable[[int], Message], Sequence[Child], tuple[int, ...]],
               Awaitable[Answers]]


class Processes(Protocol):
    """The supervisor's children."""

    @property
    def children(self) -> Mapping[int, Child]: ...
    @property
    def capture(self) -> CaptureWriter: ...


class Replays:
    def __init__(self, ask: Ask, processes: Processes) -> None:
        """`ask`: Inquiry.ask_workers."""
        self._ask = ask
        self._processes = processes

    async def misses(self) -> dict[str, Any]:
        """Returns the misses of the session in force, the newest first."""
        query = await self._ask(ListReplays, self._workers(), ())
        reports = [report for some in query.answers for report in some]
        misses = [miss for report in reports for miss in report["misses"]]
        return {"missed": sum(report["missed"] for report in reports),
                "misses": sorted(misses, key=at, reverse=True),
                "unanswered": query.unanswered}

    async def settle(self) -> list[str]:
        """Returns when ended exchanges are in the access log, and recorded. The result:
        processes that have not said so in time."""
        query = await self._ask(Settle, self._workers(), ())
        is_written = await self._processes.capture.settle()
        return [*query.unanswered, *([] if is_written else [WRITER])]

    async def look(self) -> tuple[list[str], list[str]]:
        """Returns when all workers have the mode and the session that are in the files:
        why some cannot have them, and the workers without an answer in time."""
        query = await self._ask(Look, self._workers(), ())
        errors = {answer.error for answer in query.answers} - {""}
        return sorted(errors), query.unanswered

    def _workers(self) -> list[Child]:
        return [child for child in self._processes.children.values() if child.ready]


def at(miss: Mapping[str, Any]) -> float:
    return float(miss["at"])
