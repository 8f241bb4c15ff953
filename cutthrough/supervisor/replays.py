"""What the workers have missed: for operators."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from cutthrough.process.channel import ListReplays, Message
from cutthrough.supervisor.breakpoints import Answers, Processes
from cutthrough.supervisor.children import Child

Ask = Callable[[Callable[[int], Message], Sequence[Child], tuple[int, ...]],
               Awaitable[Answers]]


class Replays:
    def __init__(self, ask: Ask, processes: Processes) -> None:
        """`ask`: Inquiry.ask_workers."""
        self._ask = ask
        self._processes = processes

    async def list(self) -> dict[str, Any]:
        """Of the session in force. The newest misses come first."""
        children = [one for one in self._processes.children.values() if one.ready]
        query = await self._ask(ListReplays, children, ())
        told = [one for some in query.answers for one in some]
        misses = [miss for one in told for miss in one["misses"]]
        return {"missed": sum(one["missed"] for one in told),
                "misses": sorted(misses, key=at, reverse=True),
                "unanswered": query.unanswered}


def at(miss: Mapping[str, Any]) -> float:
    return float(miss["at"])
