"""Processes for the admin listener's queries about captured exchanges.

They start with a query, and end after a while without one. Each has one query at a
time. If a process does not answer, or its answer is not taken, it is killed: its filter
may run for ever, and it holds no state.

    a reader's reads ── two at a time ──> in line with other readers' ──> four at a time

A reader is a named token, or an address without one. So the slow filters of a reader
delay another's list by two of its turns at most (R91). A request that is sent and an
import stand in no line: they run no filter, and the page bounds them.
"""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from typing import Protocol

import msgspec

from cutthrough.capture.query import MOST_FRAME, Answer, Query, QueryError
from cutthrough.config.files import FileError, read_file
from cutthrough.exchange.work import Busy, Lines
from cutthrough.generation.ca_certificate import only_certificates
from cutthrough.generation.generation import Generation
from cutthrough.process.helper import start_helper
from cutthrough.supervisor.listeners import Listeners

# The program; its channel's descriptor follows
COMMAND = (sys.executable, "-P", "-m", "cutthrough.capture.query_process")
# Reads at a time, of all and of a reader; and how long a read waits for its turn
MOST_READING, MOST_READING_EACH = 4, 2
WAIT_S = 10.0
# In line, or at work; of all, and of a reader
MOST_WAITING, MOST_WAITING_EACH = 256, 32
# Until the next piece of an answer. Pages take half a second by themselves, and an
# archive of all flows some seconds; a request that is sent has 30 s
ANSWER_S = 20.0
ANSWER_S_OF = {"list": 5.0, "watch": 5.0, "open": 5.0, "send": 40.0, "import": 120.0}
# Until the end of an answer, which a reader may take slowly
WHOLE_S = 600.0
UNLINED = ("send", "import")
# After which an unused process ends
IDLE_S = 60.0


Content = AsyncIterator[bytes] | None


class Program(Protocol):
    """The part of the supervisor used here."""

    generation: Generation
    listeners: Listeners


class QueryProcess:
    """One process. `close` ends it."""

    def __init__(self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader,
                 writer: asyncio.StreamWriter) -> None:
        self.process = process
        self._reader = reader
        self._writer = writer
        self.used_at = time.monotonic()
        self.is_free = True                  # the last answer was taken to its end
        self._until = 0.0                    # the deadline of the query in hand

    @classmethod
    async def start(cls) -> "QueryProcess":
        """Raises OSError."""
        process, ours = start_helper(COMMAND, socket.SOCK_STREAM)
        reader, writer = await asyncio.open_unix_connection(sock=ours)
        return cls(process, reader, writer)

    async def ask(self, query: Query, content: Content = None) -> Answer:
        """Raises QueryError, TimeoutError, and the exceptions of `content`."""
        self.is_free = False
        data = msgspec.json.encode(query)
        if len(data) > MOST_FRAME:
            raise QueryError("the query is too long")
        self._writer.write(len(data).to_bytes(4, "little") + data)
        if content is not None:
            await self._pass_on(content, query.size)
        self._until = time.monotonic() + WHOLE_S
        wait_s = ANSWER_S_OF.get(query.verb, ANSWER_S)
        return msgspec.json.decode(await self._frame(wait_s), type=Answer)

    async def _pass_on(self, content: AsyncIterator[bytes], left: int) -> None:
        """The query's file, no faster than it is taken."""
        async for piece in content:
            left -= len(piece)
            if left < 0:                     # further bytes would be the next query
                break
            self._writer.write(piece)
            async with asyncio.timeout(ANSWER_S):
                await self._writer.drain()
        if left:                             # the process would wait for the rest
            raise QueryError("the file is not as long as was said", 400)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The content. Raises QueryError, and TimeoutError."""
        while piece := await self._frame(ANSWER_S):
            yield piece
        self.used_at = time.monotonic()
        self.is_free = True

    async def _frame(self, wait_s: float) -> bytes:
        try:
            async with asyncio.timeout(min(wait_s, self._until - time.monotonic())):
                size = int.from_bytes(await self._reader.readexactly(4), "little")
                return await self._reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise QueryError("the reader of flows has died") from None

    def close(self) -> None:
        self._writer.transport.abort()
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGKILL)


class FlowQueries:
    """All of them. `close` ends them. Implements admin.Flows."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._free: list[QueryProcess] = []
        self._lines = Lines(MOST_READING, MOST_READING_EACH, MOST_WAITING,
                            MOST_WAITING_EACH, WAIT_S)
        self._children: dict[int, subprocess.Popen[bytes]] = {}   # until reaped
        self._timer: asyncio.TimerHandle | None = None

    def capture_database(self) -> str:
        """A path or a URL; "": there is none."""
        return self._program.generation.config.capture_database

    def own_proxy(self) -> tuple[str, int] | None:
        """The address of a listener for operators' requests; None: there is none.

        It requires credentials: without, the admin token would be enough to be this
        host. Nor is it a unix socket, because there a number can be a user.
        """
        for listener, (host, port) in zip(
                self._program.generation.config.all_listeners,
                self._program.listeners.bound(), strict=True):
            if ("http" in listener.protocols and listener.auth == "required"
                    and not listener.certificates and not listener.proxy_protocol
                    and listener.transparent == "off" and not host.startswith("unix:")):
                return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port
        return None

    def authorities(self) -> str:
        """Returns the authorities, in PEM, whose certificates the proxy's tunnels may
        show: its own, and those of origin_ca."""
        files = self._program.generation.interception
        if files is not None:
            return only_certificates(files.certificate + b"\n" + files.origin_ca)
        path = self._program.generation.config.origin_ca
        try:
            return only_certificates(read_file(path)) if path else ""
        except (OSError, FileError) as error:
            raise QueryError(f"origin_ca: {error}") from None

    @contextlib.asynccontextmanager
    async def ask(self, query: Query, content: Content = None) -> AsyncIterator[
            tuple[Answer, AsyncIterator[bytes]]]:
        """The answer's head and its content. `content`: the file of an import. Raises
        QueryError."""
        reader, is_lined = reader_of(query), query.verb not in UNLINED
        if is_lined:
            try:
                await self._lines.enter(reader)
            except Busy:
                raise QueryError("all readers of flows are busy") from None
        child: QueryProcess | None = None
        try:
            child = self._take() or await QueryProcess.start()
            self._children[child.process.pid] = child.process
            yield await child.ask(query, content), child.pieces()
        except TimeoutError:
            raise QueryError("no answer in time; a simpler filter may help") from None
        except OSError as error:
            raise QueryError(f"flows cannot be read: {error}") from None
        finally:
            if child is not None:
                self._put_back(child)
            if is_lined:
                self._lines.leave(reader)

    def _take(self) -> QueryProcess | None:
        while self._free:
            child = self._free.pop()
            if child.process.returncode is None:
                return child
            child.close()                    # it has died meanwhile
        return None

    def _put_back(self, child: QueryProcess) -> None:
        if not child.is_free or child.process.returncode is not None:
            child.close()
            return
        self._free.append(child)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)

    def _end_idle(self) -> None:
        self._timer = None
        now = time.monotonic()
        for child in [child for child in self._free if now - child.used_at >= IDLE_S]:
            self._free.remove(child)
            child.close()
        if self._free:
            self._timer = asyncio.get_running_loop().call_later(IDLE_S, self._end_idle)

    def on_reaped(self, pid: int, status: int) -> bool:
        """Takes note of the end of a child. False: it is none of these."""
        process = self._children.pop(pid, None)
        if process is None:
            return False
        process.returncode = os.waitstatus_to_exitcode(status)
        return True

    def close(self) -> None:
        """Ends them at once."""
        if self._timer is not None:
            self._timer.cancel()
        for child in self._free:
            child.close()
        self._free.clear()
        for pid, process in self._children.items():
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                process.wait()
        self._children.clear()


def reader_of(query: Query) -> str:
    """The token's name if it has one, else the address; see admin.rights.asker."""
    return query.client.rpartition(" at ")[0] or query.client
