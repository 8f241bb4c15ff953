"""Operators' queries about connections: the supervisor's side.

Only the workers know their connections. The supervisor sends each of them the query
over its channel; a worker answers with a memory descriptor, because a list may be long.
If a worker does not answer in time, the result names it. While the previous program
drains, it is asked too: see upgrade. Endings come over one pipe, in whole lines, and
only while there is a watcher.
"""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import msgspec

from cutthrough.process.channel import (
    Commit,
    Cut,
    CutReport,
    Decided,
    List,
    Listed,
    Message,
    Reopen,
    Trace,
    Watch,
)
from cutthrough.process.packets import in_memory
from cutthrough.process.selector import Selector
from cutthrough.supervisor.breakpoints import Breakpoints
from cutthrough.supervisor.capture_switch import CaptureSwitch
from cutthrough.supervisor.capture_writer import CaptureWriter
from cutthrough.supervisor.children import Child
from cutthrough.supervisor.log_level import LogLevel
from cutthrough.supervisor.open_flows import OpenFlows
from cutthrough.supervisor.replays import Replays

if TYPE_CHECKING:
    from cutthrough.supervisor.succession import Succession
    from cutthrough.supervisor.upgrade import Predecessor

log = logging.getLogger("cutthrough")

# A worker answers within a turn of its loop. If it takes longer, it hangs or has died.
ANSWER_TIMEOUT_S = 2.0
READ_BYTES = 65536
# A cut is repeated while tunnels move: each is in transit for some milliseconds only,
# but a hand-over of many goes on for longer
ROUNDS, REPEAT_S = 10, 0.01


class Processes(Protocol):
    """The supervisor's children, and the previous program."""

    @property
    def children(self) -> Mapping[int, Child]: ...
    @property
    def capture(self) -> CaptureWriter: ...
    @property
    def predecessor(self) -> "Predecessor | None": ...
    @property
    def succession(self) -> "Succession": ...
    def reopen(self) -> None: ...


class Respondent(Protocol):
    """A process that answers queries: a worker, or the previous program."""

    @property
    def pid(self) -> int: ...
    @property
    def name(self) -> str: ...
    def send(self, message: Message) -> bool: ...
    def take_fd(self) -> int: ...


class CutResult(NamedTuple):
    """The result of a cut: the number of connections, the names of the processes that
    did not answer, and whether tunnels moved between workers (see CutReport.moves)."""

    total: int
    unanswered: list[str]
    moves: int


class Query:
    """One query to several processes, done when all have answered.

    `names`: of the processes, by process id.
    """

    def __init__(self, names: dict[int, str]) -> None:
        self.pending = names                 # the names of those yet to answer
        self.answers: list[Any] = []
        self.done = asyncio.Event()

    @property
    def unanswered(self) -> list[str]:
        return list(self.pending.values())

    def on_answer(self, pid: int, answer: Any) -> None:
        if answer is not None:
            self.answers.append(answer)
        self.pending.pop(pid, None)
        if not self.pending:
            self.done.set()


class Inquiry:
    """Sends queries to the workers and gathers their answers."""

    def __init__(self, processes: Processes) -> None:
        self._processes = processes
        self._queries: dict[int, Query] = {}
        self._number = 0
        self._pipe: tuple[int, int] | None = None
        self._partial_line = b""
        self._watchers: set[asyncio.Queue[bytes]] = set()
        self.breakpoints = Breakpoints(self.ask_workers, processes)
        self.capture_switch = CaptureSwitch(self.ask_workers, processes)
        self.log_level = LogLevel(self.ask_workers, processes)
        self.replays = Replays(self.ask_workers, processes)
        self.open_flows = OpenFlows(self.ask_workers, processes)

    # Queries

    async def list(
            self, selector: Selector) -> tuple[list[dict[str, Any]], list[str]]:
        """Returns the connections that match `selector`, and the names of the processes
        that did not answer."""
        query = await self._ask(lambda number: List(number, selector))
        return [row for rows in query.answers for row in rows], query.unanswered

    async def trace(self, name: str) -> dict[str, Any] | None:
        """Returns the last events of the connection with this id, or None."""
        query = await self._ask(lambda number: Trace(number, name))
        return next((row for rows in query.answers for row in rows), None)

    async def cut(self, selector: Selector) -> CutResult:
        """Closes the selected connections now, those in transit after they arrive."""
        total, most = 0, 0
        for number in range(ROUNDS):
            query = await self._ask(lambda number: Cut(number, selector))
            count = sum(result.count for result in query.answers)
            moves = max((result.moves for result in query.answers), default=0)
            total, most = total + count, max(most, moves)
            # If tunnels may move, once more: one may have arrived behind the query
            if not moves or query.unanswered or (number and not count and moves < 2):
                break
            await asyncio.sleep(REPEAT_S)
        return CutResult(total, query.unanswered, most)

    async def answer(self, question: Message) -> tuple[Message, int] | None:
        """Answers a query of the new program: the message, and its descriptor or -1.
        None: it wants no answer."""
        match question:
            case Reopen():
                self._processes.reopen()
                return None
            case Commit():
                self._processes.succession.follow()
                self.pass_on(question)
                return None
            case Cut(number, selector):
                result = await self.cut(selector)
                return CutReport(number, result.total, result.moves), -1
            case List(number, selector):
                rows, _ = await self.list(selector)
            case Trace(number, name):
                trace = await self.trace(name)
                rows = [trace] if trace is not None else []
            case _:
                raise ValueError(type(question).__name__)
        return Listed(number), in_memory(rows)

    def pass_on(self, message: Message) -> None:
        """Sends this to the previous program, if it drains."""
        before = self._processes.predecessor
        if before is not None and before.drains:
            before.send(message)

    async def _ask(self, question: Callable[[int], List | Trace | Cut]) -> Query:
        respondents: list[Respondent] = [
            child for child in self._processes.children.values() if child.ready]
        before = self._processes.predecessor
        if before is not None and before.drains:
            respondents.append(before)

        def send(number: int) -> None:
            for respondent in respondents:
                respondent.send(question(number))

        return await self._gather(
            {respondent.pid: respondent.name for respondent in respondents}, send)

    async def ask_workers(
            self, question: Callable[[int], Message], children: Sequence[Child],
            fds: tuple[int, ...]) -> Query:
        """Asks these workers alone, and not the previous program."""
        def send(number: int) -> None:
            for child in children:
                child.send(question(number), fds)

        return await self._gather({child.pid: child.name for child in children}, send)

    async def _gather(self, names: dict[int, str],
                      send: Callable[[int], None]) -> Query:
        self._number += 1
        number = self._number                # `_number` may change while this waits
        query = Query(names)
        if not names:
            return query
        self._queries[number] = query
        try:
            send(number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(query.done.wait(), ANSWER_TIMEOUT_S)
        finally:
            del self._queries[number]
        return query

    def on_message(self, child: Respondent, message: Message) -> None:
        """Takes a worker's answer; drops it if its query is over."""
        match message:
            case Listed(number):
                try:
                    answer: Any = read_list(child.take_fd())
                except (OSError, ValueError) as error:
                    # It counts as unanswered. Perhaps we had no descriptor for it
                    log.error("cannot read the answer of %s: %s", child.name, error)
                    return
            case CutReport(number) | Decided(number):
                answer = message
            case _:
                return
        if number in self._queries:
            self._queries[number].on_answer(child.pid, answer)

    def on_death(self, child: Respondent) -> None:
        for query in self._queries.values():
            query.on_answer(child.pid, None)

    # Endings as they come

    def watch(self, queue: "asyncio.Queue[bytes]") -> None:
        """Puts batches of JSON lines into the queue until `unwatch`."""
        self._watchers.add(queue)
        if self._pipe is None:
            self._pipe = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            asyncio.get_running_loop().add_reader(self._pipe[0], self._on_readable)
            for child in self._processes.children.values():
                self.on_ready(child)

    def unwatch(self, queue: "asyncio.Queue[bytes]") -> None:
        self._watchers.discard(queue)
        if not self._watchers:
            self.close()

    def on_ready(self, child: Child) -> None:
        """Has a new worker report its endings, if there is a watcher, heed breakpoints,
        if they are armed, capture nothing, if that is paused, and log at the level
        that an operator has set."""
        self.breakpoints.on_ready(child)
        self.capture_switch.on_ready(child)
        self.log_level.on_ready(child)
        if self._pipe is not None and child.ready:
            child.send(Watch(True), (self._pipe[1],))

    def _on_readable(self) -> None:
        assert self._pipe is not None
        try:
            data = os.read(self._pipe[0], READ_BYTES)
        except BlockingIOError:
            return
        data = self._partial_line + data
        lines, newline, self._partial_line = data.rpartition(b"\n")
        for queue in self._watchers if newline else ():
            with contextlib.suppress(asyncio.QueueFull):
                queue.put_nowait(lines)

    def close(self) -> None:
        """Stops reading endings."""
        if self._pipe is None:
            return
        for child in self._processes.children.values():
            child.send(Watch(False))
        asyncio.get_running_loop().remove_reader(self._pipe[0])
        for fd in self._pipe:
            os.close(fd)
        self._pipe, self._partial_line = None, b""


def read_list(fd: int) -> Any:
    """Returns the decoded content of this memory, and closes it."""
    try:
        return msgspec.json.decode(os.pread(fd, os.fstat(fd).st_size, 0))
    finally:
        os.close(fd)
