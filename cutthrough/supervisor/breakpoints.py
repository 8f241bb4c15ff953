"""Breakpoints: the supervisor's side. The workers hold messages, and decide alone when
nobody does in time; here they are armed, and an operator's decisions passed on.

The arming is the program's: a worker that starts later is told, and a new program after
an upgrade begins without it. It ends by itself.
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from cutthrough.log.stderr import say
from cutthrough.process.breakpoints import Chosen, Decision
from cutthrough.process.channel import (
    Arm,
    Decide,
    Decided,
    ListHeld,
    Message,
)
from cutthrough.process.packets import in_memory
from cutthrough.supervisor.children import Child


class Processes(Protocol):
    """The supervisor's children."""

    @property
    def children(self) -> Mapping[int, Child]: ...


class Answers(Protocol):
    """The workers' answers, and the names of those that did not."""

    @property
    def answers(self) -> list[Any]: ...
    @property
    def unanswered(self) -> list[str]: ...


Ask = Callable[[Callable[[int], Message], Sequence[Child], tuple[int, ...]],
               Awaitable[Answers]]


class Breakpoints:
    """Names a held message `PID-NUMBER`: the worker, and its number there."""

    def __init__(self, ask: Ask, processes: Processes) -> None:
        """`ask`: Inquiry.ask_workers."""
        self._ask_workers = ask
        self._processes = processes
        self._until = 0.0
        self.chosen = Chosen()

    @property
    def armed_s(self) -> float:
        """Seconds until the end of the arming; 0: they are not armed."""
        if not self._until:
            return 0.0
        return max(0.0, self._until - asyncio.get_running_loop().time())

    async def arm(self, seconds: float, chosen: Chosen, who: str) -> list[str]:
        """0: not any more. Waits until the workers heed it; returns the names of those
        that did not answer. `who`: for the log."""
        self.chosen = chosen if seconds else Chosen()
        self._until = asyncio.get_running_loop().time() + seconds if seconds else 0.0
        say(f"breakpoints: armed for {seconds:g} s{show_chosen(chosen)} by {who}"
            if seconds else f"breakpoints: disarmed by {who}")
        query = await self._ask_workers(
            lambda query: Arm(query, seconds, chosen),
            [child for child in self._processes.children.values() if child.ready], ())
        return query.unanswered

    def on_ready(self, child: Child) -> None:
        if child.ready and (left := self.armed_s):
            child.send(Arm(0, left, self.chosen))

    async def held(self) -> tuple[list[dict[str, Any]], list[str]]:
        """All held messages, the oldest first, and the workers without an answer."""
        return await self._ask(
            [child for child in self._processes.children.values() if child.ready], 0)

    async def show(self, name: str) -> dict[str, Any] | None:
        """One with its body; None: it is not held any more."""
        child, number = self._find(name)
        if child is None:
            return None
        messages, _ = await self._ask([child], number)
        return messages[0] if messages else None

    async def _ask(self, children: list[Child],
                   number: int) -> tuple[list[dict[str, Any]], list[str]]:
        queries = await asyncio.gather(*(self._ask_workers(
            lambda query: ListHeld(query, number), [child], ()) for child in children))
        messages = [{"id": f"{child.pid}-{message.pop('number')}",
                     "worker": child.slot.index, **message}
                    for child, query in zip(children, queries, strict=True)
                    for some in query.answers for message in some]
        return (sorted(messages, key=lambda message: message["left_s"]),
                [name for query in queries for name in query.unanswered])

    async def decide(self, name: str, decision: Decision,
                     who: str) -> tuple[int, str]:
        """Returns a status of HTTP, and a reason."""
        child, number = self._find(name)
        if child is None:
            return 404, "not held any more"
        fd = in_memory(decision)
        try:
            query = await self._ask_workers(
                lambda query: Decide(query, number), [child], (fd,))
        finally:
            os.close(fd)
        for answer in query.answers:
            assert isinstance(answer, Decided)
            if answer.gone:
                return 404, "not held any more"
            if answer.error:
                return 400, answer.error
            say(f"breakpoints: {decision.action} of {name} by {who}")
            return 200, "ok"
        if query.unanswered:
            return 503, "the worker did not answer"
        return 404, "the worker has ended"

    def _find(self, name: str) -> tuple[Child | None, int]:
        match = re.fullmatch(r"([0-9]{1,9})-([0-9]{1,15})", name)
        if match is None:
            return None, 0
        child = self._processes.children.get(int(match[1]))
        return (child if child is not None and child.ready else None), int(match[2])


def show_chosen(chosen: Chosen) -> str:
    """Returns the chosen requests in words, for a place behind a time; "" if all
    requests are held."""
    texts = (*chosen.methods, *chosen.hosts, *chosen.paths)
    return f" for {' '.join(texts)}" if texts else ""
