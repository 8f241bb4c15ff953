"""What an operator may ask of the running program: the supervisor's side of it.

Connections are the workers' own: they are asked over their channels, answer with a
descriptor of memory (a list may be long), and a worker that does not answer in time is
named. The program before us is asked as well, while it drains: see upgrade. Endings
come over one pipe, in which every line is whole, and only while somebody watches.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from cutthrough.process.channel import (
    Cut,
    List,
    Listed,
    Message,
    Trace,
    WasCut,
    Watch,
)
from cutthrough.process.selector import Selector
from cutthrough.supervisor.children import Child

if TYPE_CHECKING:
    from cutthrough.supervisor.upgrade import Predecessor

log = logging.getLogger("cutthrough")

# A worker answers within a turn of its loop; after this it hangs, or has just died.
PATIENCE_S = 2.0
READ_BYTES = 65536
# A tunnel is on its way to another worker for some milliseconds; all are for a while
ROUNDS, AGAIN_S = 10, 0.01


class Team(Protocol):
    """The workers, as the supervisor has them, and the program before us."""

    @property
    def children(self) -> Mapping[int, Child]: ...
    @property
    def predecessor(self) -> "Predecessor | None": ...


class Asked(Protocol):
    """Who may be asked: a worker, or the program before us."""

    @property
    def pid(self) -> int: ...
    @property
    def name(self) -> str: ...
    def tell(self, message: Message) -> bool: ...
    def take_fd(self) -> int: ...


class Ended(NamedTuple):
    """What became of a cut: how many there were, who did not answer, and whether some
    changed their worker (see WasCut)."""

    total: int
    silent: list[str]
    moves: int


class Query:
    """One question to several workers: done when all have answered."""

    def __init__(self, asked: dict[int, str]) -> None:
        self.left = asked                    # their names
        self.answers: list[Any] = []
        self.done = asyncio.Event()

    @property
    def silent(self) -> list[str]:
        return list(self.left.values())

    def answered(self, pid: int, answer: Any) -> None:
        if answer is not None:
            self.answers.append(answer)
        self.left.pop(pid, None)
        if not self.left:
            self.done.set()


class Inquiry:
    """Asks the workers, and gathers what they say."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._queries: dict[int, Query] = {}
        self._number = 0
        self._pipe: tuple[int, int] | None = None
        self._rest = b""
        self._watchers: set[asyncio.Queue[bytes]] = set()

    # Questions

    async def list_connections(
            self, selector: Selector) -> tuple[list[dict[str, Any]], list[str]]:
        """Returns the connections that `selector` means, and who did not answer."""
        query = await self._ask(lambda number: List(number, selector))
        return [one for found in query.answers for one in found], query.silent

    async def trace_connection(self, name: str) -> dict[str, Any] | None:
        """What happened last to the one with this id; None: there is none."""
        query = await self._ask(lambda number: Trace(number, name))
        return next((one for found in query.answers for one in found), None)

    async def cut(self, selector: Selector) -> Ended:
        """Ends them now, and those that change their worker where they arrive."""
        total, most = 0, 0
        for number in range(ROUNDS):
            query = await self._ask(lambda number: Cut(number, selector))
            count = sum(was.count for was in query.answers)
            moves = max((was.moves for was in query.answers), default=0)
            total, most = total + count, max(most, moves)
            # Once more at least where some may move: one came behind our question
            if not moves or query.silent or (number and not count and moves < 2):
                break
            await asyncio.sleep(AGAIN_S)
        return Ended(total, query.silent, most)

    async def _ask(self, question: Callable[[int], List | Trace | Cut]) -> Query:
        self._number += 1
        number = self._number                # others ask while we wait
        asked: list[Asked] = [c for c in self._team.children.values() if c.ready]
        before = self._team.predecessor
        if before is not None and before.drains:
            asked.append(before)
        query = Query({one.pid: one.name for one in asked})
        if not asked:
            return query
        self._queries[number] = query
        try:
            for one in asked:
                one.tell(question(number))
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(query.done.wait(), PATIENCE_S)
        finally:
            del self._queries[number]
        return query

    def on_message(self, child: Asked, message: Message) -> None:
        """Takes a worker's answer; one that nobody waits for any more is dropped."""
        match message:
            case Listed(number):
                try:
                    answer: Any = read_list(child.take_fd())
                except (OSError, ValueError) as error:
                    # It counts as unanswered: we had no descriptor for it, perhaps
                    log.error("cannot read the answer of %s: %s", child.name, error)
                    return
            case WasCut(number):
                answer = message
            case _:
                return
        if number in self._queries:
            self._queries[number].answered(child.pid, answer)

    def on_death(self, child: Asked) -> None:
        for query in self._queries.values():
            query.answered(child.pid, None)

    # Endings as they come

    def watch(self, queue: "asyncio.Queue[bytes]") -> None:
        """Puts batches of JSON lines into the queue until `unwatch`."""
        self._watchers.add(queue)
        if self._pipe is None:
            self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            asyncio.get_running_loop().add_reader(self._pipe[0], self._on_readable)
            for child in self._team.children.values():
                self.on_ready(child)

    def unwatch(self, queue: "asyncio.Queue[bytes]") -> None:
        self._watchers.discard(queue)
        if not self._watchers:
            self.close()

    def on_ready(self, child: Child) -> None:
        """A worker that begins while somebody watches is to tell, too."""
        if self._pipe is not None and child.ready:
            child.tell(Watch(True), (self._pipe[1],))

    def _on_readable(self) -> None:
        assert self._pipe is not None
        try:
            data = os.read(self._pipe[0], READ_BYTES)
        except BlockingIOError:
            return
        lines, newline, self._rest = (self._rest + data).rpartition(b"\n")
        for queue in self._watchers if newline else ():
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(lines)

    def close(self) -> None:
        """Hears no more of what ends."""
        if self._pipe is None:
            return
        for child in self._team.children.values():
            child.tell(Watch(False))
        asyncio.get_running_loop().remove_reader(self._pipe[0])
        for fd in self._pipe:
            os.close(fd)
        self._pipe, self._rest = None, b""


def read_list(fd: int) -> Any:
    """Returns what this memory holds, and closes it."""
    try:
        return msgspec.json.decode(os.pread(fd, os.fstat(fd).st_size, 0))
    finally:
        os.close(fd)
