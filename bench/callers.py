"""Clients that record each failed request, with its phase and its connection.

wrk only counts errors. There are four kinds: requests one after another on a
connection, each on its own connection, with a pause between two, and tunnels that echo.
Every answer is checked whole.

A request may be lost if the other side closes an idle connection at the same time (RFC
9112 section 9.3.1); the client then sends it again. If that was unavoidable, because
the close was sent before the request arrived, it counts as `crossed`, not as a failure.
The client's kernel shows which it was: an end of stream if the close came first, and
ECONNRESET if the request had arrived and was thrown away.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

#: No answer takes long here; a client that waits this long has been forgotten.
PATIENCE = 10.0
#: Pause between two requests: near the idle time after which a drain closes.
THOUGHT = (0.4, 2.4)
#: A drain does not close connections used this recently (worker/worker.py); the slack
#: is for two clocks and a late loop.
LAST_REQUEST, SLACK = 1.0, 0.2


@dataclass(frozen=True)
class Failure:
    """A request without a complete answer."""

    opened_at: float  # when its connection was asked for; time.monotonic()
    at: float
    port: int  # of the client's end; 0: never connected
    what: str


@dataclass
class Tally:
    """The results of all callers together."""

    served: int = 0
    connections: int = 0
    crossed: int = 0
    longest: float = 0.0
    failures: list[Failure] = field(default_factory=list)


class Lost(Exception):
    """The connection ended instead of answering."""


class Connection:
    """One connection to the proxy; closed by `close`."""

    def __init__(self, sock: socket.socket, opened_at: float) -> None:
        self._sock, self.opened_at = sock, opened_at
        self.port = int(sock.getsockname()[1])
        self.used_at = 0.0  # when the last answer was whole; 0: none yet

    @classmethod
    async def open(cls, address: tuple[str, int], source: str = "") -> Connection:
        opened_at = time.monotonic()
        sock = socket.socket()
        sock.setblocking(False)
        try:
            if source:
                sock.bind((source, 0))
            await asyncio.get_running_loop().sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return cls(sock, opened_at)

    def has_ended(self) -> bool:
        """Has the other side closed, as far as this side can know?"""
        try:
            return not self._sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._sock, data)

    async def read(self, n: int) -> bytes:
        """Return at least one byte. Raises Lost at an end of stream."""
        data = await asyncio.get_running_loop().sock_recv(self._sock, n)
        if not data:
            raise Lost("an end of stream")
        return data

    async def read_response(self, has_body: bool) -> tuple[bytes, bytes]:
        """Return head and body; a body must have a Content-Length."""
        data = b""
        while (end := data.find(b"\r\n\r\n") + 4) < 4:
            data += await self._more(data)
        head, body = data[:end].lower(), data[end:]
        length = 0
        if has_body and b"\r\ncontent-length: " in head:
            length = int(head.partition(b"\r\ncontent-length: ")[2].split(b"\r\n")[0])
        while len(body) < length:
            body += await self._more(data)
        return head, body

    async def _more(self, so_far: bytes) -> bytes:
        try:
            return await self.read(65536)
        except (OSError, Lost) as error:
            if so_far:
                raise RuntimeError(f"{error} after {len(so_far)} bytes") from error
            raise

    def close(self) -> None:
        self._sock.close()


class Callers:
    """Runs the clients from `start` to `stop`; `tally` has their results.

    `origin` answers GET `path` with `body`; `echo` is host:port of an echo server.
    """

    def __init__(
        self, address: tuple[str, int], credentials: str, origin: str, path: str,
        body: bytes, echo: str,
    ) -> None:  # fmt: skip
        field = f"Proxy-Authorization: Basic {credentials}\r\n\r\n"
        self._get = (
            f"GET http://{origin}{path} HTTP/1.1\r\nHost: {origin}\r\n{field}".encode()
        )
        self._connect = f"CONNECT {echo} HTTP/1.1\r\nHost: {echo}\r\n{field}".encode()
        self._address, self._body = address, body
        self.tally = Tally()
        self._over = False
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, steady: int, fresh: int, thinking: int, tunnels: int) -> None:
        for count, act in (
            (steady, self._steady), (fresh, self._fresh),
            (thinking, self._thinking), (tunnels, self._tunnel),
        ):  # fmt: skip
            self._tasks += [asyncio.create_task(self._run(act)) for _ in range(count)]

    async def stop(self) -> None:
        """Let each client finish its current request."""
        self._over = True
        await asyncio.gather(*self._tasks)

    async def _run(self, act: Callable[[], Awaitable[None]]) -> None:
        while not self._over:
            await act()

    async def _open(self) -> Connection | None:
        try:
            async with asyncio.timeout(PATIENCE):
                connection = await Connection.open(self._address)
        except (OSError, TimeoutError) as error:
            self._fail(None, f"connect: {name_of(error)}")
            return None
        self.tally.connections += 1
        return connection

    def _fail(self, connection: Connection | None, what: str) -> None:
        now = time.monotonic()
        opened_at, port = now, 0
        if connection is not None:
            opened_at, port = connection.opened_at, connection.port
        self.tally.failures.append(Failure(opened_at, now, port, what))

    async def _steady(self) -> None:
        await self._ask_many(lambda: random.uniform(0.002, 0.02))

    async def _thinking(self) -> None:
        await self._ask_many(lambda: random.uniform(*THOUGHT))

    async def _ask_many(self, thought: Callable[[], float]) -> None:
        """Runs until an answer announces the end of the connection, or it has ended."""
        connection = await self._open()
        while connection is not None:
            goes_on = await self._ask(connection)
            if goes_on and not self._over:
                await asyncio.sleep(thought())
                goes_on = not connection.has_ended()
            if not goes_on or self._over:
                connection.close()
                return

    async def _fresh(self) -> None:
        connection = await self._open()
        if connection is not None:
            with contextlib.closing(connection):
                await self._ask(connection)
        await asyncio.sleep(random.uniform(0.002, 0.02))

    async def _ask(self, connection: Connection) -> bool:
        """Sends one request. May the connection carry another?"""
        began = time.monotonic()
        try:
            async with asyncio.timeout(PATIENCE):
                await connection.send(self._get)
                head, body = await connection.read_response(True)
        except (Lost, BrokenPipeError) as error:
            idle = began - connection.used_at
            if connection.used_at and idle > LAST_REQUEST - SLACK:
                self.tally.crossed += 1
            else:
                self._fail(connection, f"request: {name_of(error)}")
            return False
        except (OSError, RuntimeError, TimeoutError) as error:
            self._fail(connection, f"request: {name_of(error)}")
            return False
        self._note(began)
        connection.used_at = time.monotonic()
        if b" 200 " not in head[:13] or body != self._body:
            self._fail(connection, f"answer: {head[:40]!r}, {len(body)} bytes")
            return False
        self.tally.served += 1
        return b"\r\nconnection: close" not in head

    def _note(self, began: float) -> None:
        self.tally.longest = max(self.tally.longest, time.monotonic() - began)

    async def _tunnel(self) -> None:
        """Opens a tunnel, echoes some random pieces, closes it."""
        connection = await self._open()
        if connection is None:
            return
        began = time.monotonic()
        with contextlib.closing(connection):
            try:
                async with asyncio.timeout(PATIENCE):
                    await connection.send(self._connect)
                    head, _ = await connection.read_response(False)
                    if b" 200 " not in head[:13]:
                        self._fail(connection, f"tunnel: {head[:40]!r}")
                        return
                    self._note(began)
                    for _ in range(random.randrange(1, 40)):
                        await self._echo(connection, os.urandom(4096))
                        await asyncio.sleep(0.02)
            except (OSError, Lost, RuntimeError, TimeoutError) as error:
                self._fail(connection, f"tunnel: {name_of(error)}")
                return
        self.tally.served += 1

    async def _echo(self, connection: Connection, data: bytes) -> None:
        await connection.send(data)
        got = b""
        while len(got) < len(data):
            got += await connection.read(65536)
        if got != data:
            raise RuntimeError("other bytes than were sent")


def name_of(error: BaseException) -> str:
    return str(error) or type(error).__name__
