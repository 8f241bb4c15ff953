"""The admin listener: an operator's view of the program and commands to it, over HTTP.

    GET    /metrics /healthz /readyz /config      for every client that can connect
    GET    /connections… /parents /origins /events /ca        the same
    GET    /traffic /mode /recordings / /overview /history    the same
    GET    /flows… /breakpoints… /sessions… /replays          with the token
    DELETE /connections?user=…; POST /reload /drain /mode?… /settle     with it
    …      /session                               a browser's (sessions.py)

It is a separate listener, by default on loopback or a unix socket. Host must be an
address, localhost or a configured name, because a page in a browser can reach a
loopback port by a name of its own site (R39). Requests that change anything require
`Authorization: Bearer TOKEN` (rights.py); without a configured token they are refused.
The supervisor is known only as `Operations` and `Connections`.
"""

import asyncio
import contextlib
import errno
import ipaddress
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from aiohttp import web
from aiohttp.http import HttpProcessingError

from cutthrough.admin.acceptor import AdminAcceptor, bind_address
from cutthrough.admin.bodies import room, send
from cutthrough.admin.breakpoints_page import Breakpoints, BreakpointsPage
from cutthrough.admin.ca_page import CaPage, Certificate
from cutthrough.admin.cross_site import (
    CROSS_SITE,
    PROTECTED,
    is_cross_site,
    watcher_key,
)
from cutthrough.admin.endings import Endings
from cutthrough.admin.flows_page import CaptureSwitch, Flows, FlowsPage
from cutthrough.admin.live_page import LivePage
from cutthrough.admin.log_level_page import LogLevel, LogLevelPage
from cutthrough.admin.metrics import Reading, render
from cutthrough.admin.mode_page import ModePage
from cutthrough.admin.open_flows import OpenFlows
from cutthrough.admin.parents import describe as describe_parents
from cutthrough.admin.parents import describe_origins
from cutthrough.admin.recordings_page import RecordingsPage, Replays
from cutthrough.admin.rights import Tokens
from cutthrough.capture.query import QueryError
from cutthrough.config.administration import AdminToken
from cutthrough.config.values import show_address, split_address
from cutthrough.net.unix_listener import is_answered
from cutthrough.process.selector import Selector
from cutthrough.storage.settings import Recordings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

# Connections: they use descriptors and memory of the supervisor (R31)
MOST_CONNECTIONS = 512
# For a request's head, and between two requests; scrapers usually return in a minute
IDLE_S = 75.0

log = logging.getLogger("cutthrough.admin")


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Is this worth logging? A malformed request is not: it is the client's fault."""
    return not (record.exc_info and isinstance(
        record.exc_info[1], HttpProcessingError | web.RequestPayloadError))


log.addFilter(is_worth_logging)


class Operations(Protocol):
    """The supervisor's operations for the admin listener."""

    @property
    def flows(self) -> Flows: ...
    def is_ready(self) -> bool: ...
    def read_counters(self) -> Reading: ...
    def show_config(self) -> str: ...
    def describe(self) -> dict[str, Any]: ...
    def ca_certificate(self) -> Certificate | None: ...
    def recording_directory(self) -> str: ...
    def recording_url(self) -> str: ...
    def recording_session(self) -> str: ...
    def recordings(self) -> Recordings: ...
    async def reload(self) -> tuple[str, str]: ...
    def drain(self) -> None: ...


class Cutting(Protocol):
    """The result of a cut: connections closed, and processes that did not answer."""

    @property
    def total(self) -> int: ...
    @property
    def unanswered(self) -> list[str]: ...


class Connections(Protocol):
    """Queries about the connections of all workers."""

    @property
    def breakpoints(self) -> Breakpoints: ...
    @property
    def replays(self) -> Replays: ...
    @property
    def open_flows(self) -> OpenFlows: ...
    @property
    def capture_switch(self) -> CaptureSwitch: ...
    @property
    def log_level(self) -> LogLevel: ...
    async def list(
        self, selector: Selector) -> tuple[list[dict[str, Any]], list[str]]: ...
    async def trace(self, name: str) -> dict[str, Any] | None: ...
    async def cut(self, selector: Selector) -> Cutting: ...
    def watch(self, queue: asyncio.Queue[bytes]) -> None: ...
    def unwatch(self, queue: asyncio.Queue[bytes]) -> None: ...


class AdminServer:
    """Serves both at `where`: `host:port` or `unix:/path`."""

    def __init__(self, operations: Operations, connections: Connections,
                 where: str) -> None:
        self._operations = operations
        self._connections = connections
        self._where = where
        self._tokens = Tokens()
        self._live = LivePage(operations.describe, operations.read_counters)
        self._names: set[str] = set()
        self._socket: socket.socket | None = None
        self._runner: web.AppRunner | None = None
        self._acceptor: AdminAcceptor | None = None
        self._accepted: AdminAcceptor | None = None     # the same, closed
        self._busy: set[object] = set()     # connections with a request in hand
        self._endings = Endings(connections, self._tokens)
        self._temporary_path = ""           # temporary path of a unix socket
        self._inode = 0

    def configure(self, token: str, tokens: Iterable[AdminToken],
                  names: Iterable[str]) -> None:
        """Sets a reload's options: the tokens (none: the listener is read-only), and
        the names allowed in Host."""
        self._tokens.configure(token, tokens)
        self._names = {"localhost", *names}

    def bind(self, shared: bool) -> None:
        """Binds the address; `start` listens. `shared`: together with the previous
        program.

        Raises OSError with the address as file name; EADDRINUSE if another program
        answers there.
        """
        try:
            if self._where.startswith("unix:"):
                self._socket = self._bind_path(self._path, shared)
            else:
                self._socket = bind_address(split_address(self._where), shared)
        except OSError as error:
            error.filename = self._where
            raise

    @property
    def _path(self) -> str:
        return self._where.removeprefix("unix:")

    @property
    def own(self) -> tuple[tuple[str, int], ...]:
        """The listener's TCP address; () for a unix socket or before `bind`."""
        if self._socket is None or self._where.startswith("unix:"):
            return ()
        return (self._socket.getsockname()[:2],)

    @property
    def shown(self) -> str:
        """The address with its actual port."""
        return show_address(self.own[0]) if self.own else self._where

    def _bind_path(self, path: str, shared: bool) -> socket.socket:
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                raise FileExistsError(errno.EEXIST, "exists and is not a socket")
        if not shared and is_answered(path):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        # A temporary path, renamed by `listen`: the path always has a socket
        self._temporary_path = f"{path}.{os.getpid()}"
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._temporary_path)
            sock.bind(self._temporary_path)
            os.chmod(self._temporary_path, 0o660)
        except BaseException:
            sock.close()
            raise
        return sock

    def listen(self) -> None:
        """Listens: connections wait for `start`, and are no longer refused."""
        assert self._socket is not None
        self._socket.listen()
        if self._temporary_path:
            self._inode = os.stat(self._temporary_path).st_ino
            os.replace(self._temporary_path, self._path)
            self._temporary_path = ""

    async def start(self) -> None:
        """Listens, and answers."""
        self.listen()
        assert self._socket is not None
        if self.own:                         # cookies do not know ports
            self._tokens.sessions.name = f"cutthrough-{self.own[0][1]}"
        app = web.Application(middlewares=[self._guard], client_max_size=4096)
        app.add_routes(self.routes())
        self._runner = web.AppRunner(
            app, access_log=None, logger=log, handle_signals=False,
            shutdown_timeout=0.2, keepalive_timeout=IDLE_S, auto_decompress=False)
        await self._runner.setup()
        self._acceptor = AdminAcceptor(
            self._socket, self._on_connection, self._shed_idle)
        self._live.start()

    def routes(self) -> list[web.RouteDef]:
        """All of them. Each answers any request with a status (R91)."""
        return [
            web.get("/metrics", self.metrics),
            web.get("/healthz", self.health), web.get("/readyz", self.ready),
            web.get("/config", self.config),
            web.get("/events", self._endings.serve, allow_head=False),
            web.get("/connections", self.connections),
            web.get("/connections/{id}/trace", self.trace),
            web.get("/parents", self.parents),
            web.get("/origins", self.origins),
            web.delete("/connections", self.cut),
            web.post("/reload", self.reload), web.post("/drain", self.drain),
            *self._live.routes(), *self._tokens.routes(),
            *CaPage(self._operations.ca_certificate).routes(),
            *FlowsPage(self._operations.flows, self._operations.read_counters,
                       self._connections.open_flows,
                       self._connections.capture_switch).routes(),
            *LogLevelPage(self._connections.log_level).routes(),
            *ModePage(self._operations.recording_directory,
                      self._connections.replays).routes(),
            *RecordingsPage(self._operations.recording_directory,
                            self._operations.recording_url,
                            self._operations.recording_session,
                            self._operations.recordings,
                            self._connections.replays).routes(),
            *BreakpointsPage(self._connections.breakpoints).routes()]

    def stop_accepting(self) -> None:
        """Stops accepting; open connections are still answered."""
        if self._acceptor is not None:
            assert self._socket is not None
            self._acceptor.close()
            self._accepted, self._acceptor = self._acceptor, None
            self._socket.close()

    async def close(self) -> None:
        """Closes the listener; a new program's socket on the same path stays."""
        self.stop_accepting()
        if self._accepted is not None:
            await self._accepted.settle()
        self._live.close()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self.release()

    def release(self) -> None:
        """Releases the address at once: enough if `start` was not called."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        with contextlib.suppress(OSError):
            if self._temporary_path:
                os.unlink(self._temporary_path)
            elif self._inode and os.stat(self._path).st_ino == self._inode:
                os.unlink(self._path)

    # Access control

    def _on_connection(self) -> asyncio.BaseProtocol:
        assert self._runner is not None and self._runner.server is not None
        asyncio.get_running_loop().call_soon(self._shed, MOST_CONNECTIONS)
        return self._runner.server()

    def _shed(self, most: int) -> None:
        """If there are more than `most` connections, closes the oldest idle ones."""
        if self._runner is None or self._runner.server is None:
            return
        there = [connection for connection in self._runner.server.connections
                 if connection.transport is not None]
        idle = [connection for connection in there if connection not in self._busy]
        for connection in idle[:max(0, len(there) - most)]:
            connection.force_close()

    def _shed_idle(self) -> None:
        self._shed(0)

    @web.middleware
    async def _guard(self, request: web.Request,
                     handler: Handler) -> web.StreamResponse:
        watcher_key(request)                # which needs the connection
        response = self._refuse(request) or await self._answer(request, handler)
        if self._acceptor is not None and self._acceptor.is_short():
            response.force_close()          # the next connection needs its descriptor
        if not response.prepared:
            for name, value in PROTECTED.items():
                response.headers.setdefault(name, value)
        return await send(request, response)

    async def _answer(self, request: web.Request,
                      handler: Handler) -> web.StreamResponse:
        self._busy.add(request.protocol)
        try:
            return await handler(request)
        except web.HTTPException as error:   # no such path, no such method
            response = web.Response(status=error.status, text=f"{error.reason}\n")
            if "Allow" in error.headers:
                response.headers["Allow"] = error.headers["Allow"]
            return response
        except ValueError as error:
            return web.Response(status=400, text=f"{error}\n")
        except QueryError as error:
            return web.Response(status=error.status, text=f"{error}\n")
        finally:
            self._busy.discard(request.protocol)
            room.give(request)

    def _refuse(self, request: web.Request) -> web.Response | None:
        """Returns the refusal of a request that is not allowed, else None."""
        # Not request.host: without a Host field it looks the host's own name up
        name = request.headers.get("Host")
        if not self._where.startswith("unix:") and name is not None and (
                not self._is_own_name(name)):
            return web.Response(status=421, text="Host is not a name of the admin "
                                "listener; see admin_names\n")
        if is_cross_site(request):
            return web.Response(status=403, text=CROSS_SITE)
        if request.headers.get("Content-Encoding", "identity") != "identity":
            return web.Response(
                status=415, text="Content-Encoding: send the body without a coding\n",
                headers={"Accept-Encoding": "identity"})
        return self._tokens.refuse(request)

    def _is_own_name(self, host: str) -> bool:
        name = host.rpartition(":")[0] if ":" in host.rpartition("]")[2] else host
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.lower().rstrip(".") in self._names
        return True

    # Handlers

    async def metrics(self, request: web.Request) -> web.StreamResponse:
        accept = request.headers.get("Accept", "")
        if self._acceptor is None:
            body, kind = render(self._operations.read_counters(), accept)
        else:
            with self._acceptor.spare.released():  # it opens files in /proc
                body, kind = render(self._operations.read_counters(), accept)
        return web.Response(body=body, headers={"Content-Type": kind})

    async def health(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text="ok\n")

    async def ready(self, request: web.Request) -> web.StreamResponse:
        if self._operations.is_ready():
            return web.Response(text="serving\n")
        return web.Response(status=503, text="not serving\n")

    async def config(self, request: web.Request) -> web.StreamResponse:
        return web.Response(text=self._operations.show_config())

    async def connections(self, request: web.Request) -> web.StreamResponse:
        selector = Selector.from_query(request.query)
        connections, unanswered = await self._connections.list(selector)
        return web.json_response({"connections": connections, "unanswered": unanswered})

    async def trace(self, request: web.Request) -> web.StreamResponse:
        name = Selector(id=request.match_info["id"]).id
        trace = await self._connections.trace(name)
        if trace is None:
            return web.Response(status=404, text="no open connection has this id\n")
        return web.json_response(trace)

    async def parents(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"parents": describe_parents(self._operations.read_counters())})

    async def origins(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {"origins": describe_origins(self._operations.read_counters())})

    async def cut(self, request: web.Request) -> web.StreamResponse:
        selector = Selector.from_query(request.query)
        if selector.is_empty():
            raise ValueError("no connections are selected: give a user, host, client, "
                             "id or state; all=true selects all")
        result = await self._connections.cut(selector)
        return web.json_response(
            {"cut": result.total, "unanswered": result.unanswered})

    async def reload(self, request: web.Request) -> web.StreamResponse:
        result, line = await self._operations.reload()
        status = {"ok": 200, "passed": 202, "refused": 409, "late": 504}[result]
        return web.Response(status=status, text=f"{line}\n")

    async def drain(self, request: web.Request) -> web.StreamResponse:
        asyncio.get_running_loop().call_soon(self._operations.drain)
        return web.Response(status=202, text="draining\n")
