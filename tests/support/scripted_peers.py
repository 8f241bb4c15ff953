"""Clients and origins of scripted sessions, and scripts of origins: see scripted."""

import contextlib
import socket
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from tests.doors import scripted as door
from tests.support.origin import OK
from tests.support.origin import Connection as Accepted
from tests.support.stream import TIMEOUT, Closed

if TYPE_CHECKING:
    from tests.support.scripted import Network

Script = Callable[["Connection"], Generator[Any, Any, None]]

#: Of a peer that reads little: its kernel takes so much by itself, ours so much more
SLOW = {"window": 4096, "queue": 65536}


class Dry(BaseException):
    """A script's read has to wait for bytes."""


class Wire:
    """A peer with the methods of a socket. A read has the session go on until it has an
    answer, and then lets time pass up to the timeout."""

    family = socket.AF_UNIX                 # it has no options of TCP

    def __init__(self, network: "Network", peer: door.Peer) -> None:
        self.network = network
        self.peer = peer
        self.may_wait = True
        self._timeout = TIMEOUT
        self._is_closed = self._was_late = False

    def settimeout(self, seconds: float) -> None:
        self._timeout = seconds

    def setsockopt(self, level: int, option: int, value: object) -> None:
        if (level, option) == (socket.SOL_SOCKET, socket.SO_LINGER):
            self.reset()

    def sendall(self, data: bytes) -> None:
        if not self.may_wait and self.peer.unread:
            raise Dry
        for piece in self.network.split(data):
            if not self.peer.put(piece):
                if self._was_late:
                    raise BrokenPipeError
                self._was_late = True   # the kernel's answer comes after the first send
                return
            self.network.turn()
        self.network.settle()

    def recv(self, n: int) -> bytes:
        left_ms = int(self._timeout * 1000)
        while True:
            if data := self.peer.take(n):
                return data
            if self.peer.was_reset:
                raise ConnectionResetError
            if self.peer.ended:
                return b""
            if not self.may_wait:
                raise Dry
            if self.network.settle():
                continue
            if left_ms <= 0:
                raise TimeoutError
            left_ms -= self.network.pass_next(left_ms)

    def shutdown(self, how: int) -> None:
        self.peer.end()
        self.network.turn()

    def reset(self) -> None:
        self.peer.reset()
        self._is_closed = True
        self.network.turn()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.peer.end()
            self.network.turn()


class Connection(Accepted):
    """An origin's, by its script or by the test."""

    def __init__(self, wire: Wire, origin: "Origin") -> None:
        # A Wire has what a handler calls of a socket, and is none
        super().__init__(wire, origin)      # type: ignore[arg-type]
        self._script = origin.script(self) if origin.script else None
        self._wanted: tuple[Any, ...] = ()

    def stall(self) -> None:
        """Sends nothing more until the peer closes."""
        while self.fill():
            pass

    def go_on(self) -> None:
        """Plays the script up to a read that has to wait."""
        if self._script is None:
            return
        self.sock.may_wait = False
        try:
            while self._script is not None:
                self._step(self._script)
        except Dry:
            pass
        finally:
            self.sock.may_wait = True

    def _step(self, script: Generator[Any, Any, None]) -> None:
        taken = len(self.received) - len(self.pending)
        try:
            try:
                value = self._wanted[0](*self._wanted[1:]) if self._wanted else None
            except Dry:
                self.pending[:] = self.received[taken:]
                raise
            except (OSError, Closed) as error:
                wanted = script.throw(error)
            else:
                wanted = script.send(value)
        except (StopIteration, OSError, Closed):
            self._script = None
            self.close()
        else:
            self._wanted = wanted if isinstance(wanted, tuple) else (wanted,)


class Origin:
    """Listens from its construction on, in the stage's network."""

    def __init__(self, network: "Network", script: Script | None,
                 host: str = "127.0.0.1", window: int = -1, queue: int = -1) -> None:
        """`window`, `queue`: of its connections, see the door's Peer."""
        self.network = network
        self.script = script
        self.host = host
        self.port = next(network.ports)
        self.window, self.queue = window, queue
        self.connections: list[Connection] = []
        self.requests: list[Any] = []
        network.origins[host, self.port] = self

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def url(self, path: str = "/") -> str:
        return f"http://{self.authority}{path}"

    @property
    def received(self) -> bytes:
        for conn in self.connections:
            with contextlib.suppress(Dry, OSError):
                conn.sock.may_wait = False
                conn.fill()
            conn.sock.may_wait = True
        return b"".join(bytes(conn.received) for conn in self.connections)

    def wait_connections(self, n: int) -> None:
        self.network.settle()
        assert len(self.connections) >= n

    def wait_requests(self, n: int) -> None:
        self.network.settle()
        assert len(self.requests) >= n

    def close(self) -> None:
        """Refuses connections from now on, and ends those that there are."""
        self.network.origins.pop((self.host, self.port), None)
        for conn in self.connections:
            conn.close()
        self.network.settle()


def answer(*replies: bytes) -> Script:
    """Answers the n-th request of a connection with the n-th reply or the last one."""

    def script(conn: Connection) -> Generator[Any, Any, None]:
        for turn in range(1 << 30):
            request = yield conn.read_request
            reply = replies[min(turn, len(replies) - 1)]
            head, mark, _ = reply.partition(b"\r\n\r\n")
            conn.send(head + mark if request.method == "HEAD" else reply)

    return script


okay = answer(OK)


def answer_and_close(*pieces: bytes) -> Script:
    """Answers one request with a close-delimited response: one answer, then FIN."""

    def script(conn: Connection) -> Generator[Any, Any, None]:
        yield conn.read_request
        conn.send(*pieces)

    return script


def keep_open(*answers: bytes, step: int = 1 << 20) -> Script:
    """Answers in pieces, and never closes: a reader gets nothing more."""

    def script(conn: Connection) -> Generator[Any, Any, None]:
        for raw in answers:
            yield conn.read_request
            conn.send(*(raw[at:at + step] for at in range(0, len(raw), step)))
        yield conn.stall

    return script


def echo(conn: Connection) -> Generator[Any, Any, None]:
    """Echoes every byte, without HTTP, and answers FIN with FIN."""
    while (yield conn.fill):
        conn.send(conn.take(len(conn.pending)))
    conn.half_close()


def stall(conn: Connection) -> Generator[Any, Any, None]:
    """Accepts and never answers."""
    yield conn.stall
