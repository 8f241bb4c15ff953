"""A raw origin: records every byte of every connection and answers by script.

A script is a function of one connection and runs in its own thread. It reads and writes
the `Stream`, and may split, stall, close, half-close or reset it anywhere. A script's
AssertionError is raised in the test, when the origin is closed.
"""

import contextlib
import queue
import socket
import threading
from collections.abc import Callable

from tests.support.stream import Closed, Message, Stream
from tests.support.wait import wait_until

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
A_DAY = 86400.0


class Connection(Stream):
    """One accepted connection, with the requests that the origin recorded."""

    def __init__(self, sock: socket.socket, origin: "Origin") -> None:
        super().__init__(sock)
        self.origin = origin
        self.requests: list[Message] = []

    def read_request(self) -> Message:
        message = super().read_request()
        self.note(message)
        return message

    def note(self, message: Message) -> None:
        self.requests.append(message)
        self.origin.requests.append(message)

    def stall(self) -> None:
        """Sends nothing more until the test ends or the peer closes."""
        while not self.origin.closing.is_set():
            try:
                if not self.fill():
                    return
            except TimeoutError:
                continue


Script = Callable[[Connection], None]


def answer(*replies: bytes) -> Script:
    """Answers the n-th request of a connection with the n-th reply or the last one."""

    def script(conn: Connection) -> None:
        for turn in range(1 << 30):
            request = conn.read_request()
            reply = replies[min(turn, len(replies) - 1)]
            head, mark, _ = reply.partition(b"\r\n\r\n")
            conn.send(head + mark if request.method == "HEAD" else reply)

    return script


okay = answer(OK)


def answer_and_close(*pieces: bytes) -> Script:
    """Answers one request with a close-delimited response: one answer, then FIN."""

    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(*pieces)

    return script


def send_events(conn: Connection, events: "queue.Queue[bytes]") -> None:
    """Answers with server-sent events, each when it comes out of the queue; b"": the
    last."""
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
              b"Transfer-Encoding: chunked\r\n\r\n")
    for event in iter(events.get, b""):
        conn.send(b"%x\r\n%s\r\n" % (len(event), event))
    conn.send(b"0\r\n\r\n")


def echo(conn: Connection) -> None:
    """Echoes every byte, without HTTP, and answers FIN with FIN."""
    while conn.fill():
        conn.send(conn.take(len(conn.pending)))
    conn.half_close()


def stall(conn: Connection) -> None:
    """Accepts and never answers."""
    conn.stall()


def flood(conn: Connection) -> None:
    """Sends for ever after its first byte."""
    conn.fill()
    with contextlib.suppress(OSError):
        while True:
            conn.send(bytes(65536))


class Origin:
    """Listens from construction until `close`."""

    def __init__(self, script: Script = okay, host: str = "127.0.0.1",
                 port: int = 0) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.script = script
        self.host = host
        self.connections: list[Connection] = []
        self.requests: list[Message] = []
        self.errors: list[BaseException] = []
        self.closing = threading.Event()
        self._threads: list[threading.Thread] = []
        self._listener = socket.socket(family, socket.SOCK_STREAM)
        self._listener.bind((host, port))
        self._listener.listen(1024)
        # With a timeout accept(2) follows poll(2). Alone it waits with a descriptor in
        # reserve, and takes the last one of a process from under a test of EMFILE.
        self._listener.settimeout(A_DAY)
        self.port: int = self._listener.getsockname()[1]
        self._start(self._accept)

    def __enter__(self) -> "Origin":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def authority(self) -> str:
        return (
            f"[{self.host}]:{self.port}"
            if ":" in self.host
            else f"{self.host}:{self.port}"
        )

    def url(self, path: str = "/") -> str:
        return f"http://{self.authority}{path}"

    def wait_connections(self, n: int) -> None:
        wait_until(lambda: len(self.connections) >= n, f"{n} connections at the origin")

    def wait_requests(self, n: int) -> None:
        wait_until(lambda: len(self.requests) >= n, f"{n} requests at the origin")

    @property
    def received(self) -> bytes:
        """Returns all bytes of all connections, for tests that some are absent."""
        return b"".join(bytes(conn.received) for conn in self.connections)

    def close(self) -> None:
        """Ends every connection and thread; raises the scripts' AssertionErrors."""
        if self.closing.is_set():
            return
        self.closing.set()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(10)               # no connection is added after this
        for conn in self.connections:
            with contextlib.suppress(OSError):
                conn.sock.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive(), "an origin's script does not end"
        self._listener.close()
        for conn in self.connections:
            conn.close()
        if self.errors:
            raise self.errors[0]

    def _start(self, target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            conn = Connection(sock, self)
            self.connections.append(conn)
            self._start(self._serve, conn)

    def _serve(self, conn: Connection) -> None:
        try:
            self.script(conn)
        except (OSError, Closed):
            pass  # the peer went away; the test judges by the received bytes
        except BaseException as error:
            self.errors.append(error)
        finally:
            conn.close()


def keep_open(*answers: bytes, step: int = 1 << 20):
    """Answers in pieces, and never closes: a reader gets nothing more."""

    def script(conn):
        for raw in answers:
            conn.read_request()
            conn.send(*(raw[at:at + step] for at in range(0, len(raw), step)))
        conn.stall()

    return script
