"""A worker's answers to operators: list, trace and cut connections, report endings,
held breakpoints, replays, and whether all is written.

A list of ten thousand connections takes a tenth of a second. It is made in pieces, and
between two pieces the loop serves.
"""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import msgspec

from cutthrough.log.accesslog import AccessLog
from cutthrough.process.breakpoints import Decision, read_chosen
from cutthrough.process.channel import (
    Arm,
    Channel,
    Cut,
    CutReport,
    Decide,
    Decided,
    List,
    Listed,
    ListHeld,
    ListOpen,
    ListReplays,
    Look,
    PauseCapture,
    SetLogLevel,
    Settle,
    Trace,
    Watch,
)
from cutthrough.process.packets import in_memory
from cutthrough.process.selector import Selector
from cutthrough.session.describe import clients, cut, describe, trace
from cutthrough.session.model.client import Client
from cutthrough.tape.open_parts import MOST_OPEN
from cutthrough.worker.journals import Tee, trace_all
from cutthrough.worker.worker import Worker

log = logging.getLogger("cutthrough")

# Connections in a piece: some 0.5 ms of work
PIECE = 100
# An exchange that ends sooner is listed when it has ended
OPEN_AFTER_US = 200_000
# Of a worker that has nothing else to do; the supervisor waits as long for an answer
FINISH_S = 2.0


class AdminQueries:
    """Answers for `worker` over `channel`."""

    def __init__(self, worker: Worker, channel: Channel) -> None:
        self._worker = worker
        self._channel = channel
        self._journal = worker.context.journal
        self._watched: AccessLog | None = None
        self.breakpoints = worker.tally.breakpoints
        self.breakpoints.on_armed = worker.context.heed_breakpoints
        self._tasks: set[asyncio.Task[None]] = set()

    def carry_out(
            self,
            message: (List | Trace | ListOpen | Cut | Watch | Arm | ListHeld | Decide
                      | PauseCapture | SetLogLevel | ListReplays | Settle | Look)
            ) -> None:
        match message:
            case List(query, selector):
                self._run(self._list(query, selector))
            case Trace(query, name):
                self._run(self._trace(query, name))
            case ListOpen(query, name):
                self._run(self._list_open(query, name))
            case Cut(query, selector):
                self._run(self._cut(query, selector))
            case Watch(on=True):
                self._watch(self._channel.take_fd())
            case Watch():
                self._unwatch()
            case Arm(query, seconds, chosen):
                self.breakpoints.arm(seconds, read_chosen(chosen))
                if query:
                    self._channel.send(Decided(query))
            case PauseCapture(query, paused):
                if self._worker.capture is not None:
                    self._worker.capture.pause(paused)
                if query:
                    self._channel.send(Decided(query))
            case SetLogLevel(query, level):
                log.setLevel(level.upper())
                trace_all(level == "debug")
                if query:
                    self._channel.send(Decided(query))
            case ListHeld(query, number):
                self._answer(query, self.breakpoints.list(number))
            case Decide(query, number):
                self._decide(query, number, self._channel.take_fd())
            case ListReplays(query):
                self._answer(query, self._worker.recordings.tell())
            case Settle(query):
                self._run(self._settle(query))
            case Look(query):
                self._run(self._look(query))

    def _run(self, answer: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(answer)
        self._tasks.add(task)
        task.add_done_callback(self._on_answered)

    def _on_answered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            # The supervisor reports this worker as unanswered after its time limit
            log.error("cannot answer an operator's query", exc_info=error)

    async def _list(self, query: int, selector: Selector) -> None:
        self._answer(query, [about async for _, about in self._matching(selector)])

    async def _trace(self, query: int, name: str) -> None:
        traces = [trace(client, self._worker.slot)
                  async for client, _ in self._matching(Selector(id=name))]
        self._answer(query, [about for about in traces if about is not None])

    async def _list_open(self, query: int, name: str) -> None:
        """Answers with the open exchanges of the newest clients; with a name, only with
        that exchange, however young it is."""
        capture = self._worker.parts.capturing
        entries: list[tuple[str, bytes]] = []
        for number, client in enumerate(clients(self._worker.context)):
            if number % PIECE == PIECE - 1:
                await asyncio.sleep(0)
            if capture is None or len(entries) == MOST_OPEN:
                break
            entry = capture.so_far(client, 0 if name else OPEN_AFTER_US)
            if entry is not None and name in ("", entry[0]):
                entries.append(entry)
        self._answer(query, entries)

    def _answer(self, query: int, rows: Any) -> None:
        fd = in_memory(rows)
        try:
            self._channel.send(Listed(query), (fd,))
        finally:
            os.close(fd)

    async def _cut(self, query: int, selector: Selector) -> None:
        worker, count = self._worker, 0
        on_their_way, before = worker.in_transit, worker.given_away
        async for client, _ in self._matching(selector):
            count += cut(client)
        moved = bool(on_their_way or worker.in_transit or worker.given_away != before)
        may_move = worker.giver is not None or bool(worker.takers)
        self._channel.send(CutReport(query, count, 2 if moved else int(may_move)))

    async def _matching(
            self, selector: Selector) -> AsyncIterator[tuple[Client, dict[str, Any]]]:
        for number, client in enumerate(clients(self._worker.context)):
            if number % PIECE == PIECE - 1:
                await asyncio.sleep(0)
            about = describe(client, self._worker.slot)
            if about is not None and selector.matches(about):
                yield client, about

    async def _settle(self, query: int) -> None:
        if self._worker.log is not None:
            self._worker.log.flush()
        await self._worker.recordings.settle()
        self._channel.send(Decided(query))

    async def _look(self, query: int) -> None:
        error = await self._worker.recordings.look()
        self._channel.send(Decided(query, error=error))

    def _decide(self, query: int, number: int, fd: int) -> None:
        with open(fd, "rb") as memory:
            memory.seek(0)                   # at its end after the writes
            decision = msgspec.json.decode(memory.read(), type=Decision)
        error = self.breakpoints.decide(number, decision)
        self._channel.send(Decided(query, error is None, error or ""))

    def _watch(self, fd: int) -> None:
        """Writes each ending into this pipe too, which this object owns from now on."""
        self._unwatch()
        loop = asyncio.get_running_loop()
        self._watched = AccessLog(loop, fd, "json", self._worker.slot)
        self._worker.context.journal = Tee(self._journal, self._watched)

    def _unwatch(self) -> None:
        if self._watched is not None:
            self._worker.context.journal = self._journal
            self._watched.close()
            self._watched = None

    async def finish(self) -> None:
        """Waits for the answers to the queries that have come."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FINISH_S)

    def close(self) -> None:
        """Abandons unanswered queries, and stops reporting endings."""
        self._unwatch()
        for task in self._tasks:
            task.cancel()
