"""One TCP connection, as bytes and as HTTP/1.1 messages; the same for both ends.

Slow and obvious on purpose: it shares no code with the proxy's parser, and returns raw
bytes. Every read has a timeout, so that no test can hang.
"""

import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

TIMEOUT = 60.0


class Closed(AssertionError):
    """The peer closed before the requested bytes had arrived."""


@dataclass
class Message:
    """A head as it was read, and its body once that has been read too."""

    raw: bytes
    start: list[str]
    fields: list[tuple[str, str]]
    body: bytes = b""
    framing: str = "none"
    trailers: list[tuple[str, str]] = field(default_factory=list)

    @classmethod
    def parse(cls, raw: bytes) -> "Message":
        first, *rest = raw.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
        return cls(raw, first.split(" ", 2), [split_field(line) for line in rest])

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        """Returns the value of a field that may occur at most once."""
        values = self.all(name)
        assert len(values) < 2, f"{name} stands {len(values)} times"
        return values[0] if values else None

    @property
    def method(self) -> str:
        return self.start[0]

    @property
    def target(self) -> str:
        return self.start[1]

    @property
    def status(self) -> int:
        return int(self.start[1])

    @property
    def error(self) -> str | None:
        """Returns the error token of the proxy's own Proxy-Status (RFC 9209)."""
        value = self.get("Proxy-Status") or ""
        _, separator, rest = value.partition("error=")
        return rest.split(";")[0].strip() if separator else None


def split_field(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    assert colon and name and name == name.strip(), f"a bad field line: {line!r}"
    return name, value.strip()


class Stream:
    """A connected socket; the caller closes it. `received` has all bytes read."""

    #: What stands between the bytes and the socket: see tests.support.framing
    wrap = staticmethod(lambda sock: sock)

    def __init__(self, sock: socket.socket, timeout: float = TIMEOUT) -> None:
        sock.settimeout(timeout)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = self.wrap(sock)
        self.pending = bytearray()
        self.received = bytearray()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    # -- bytes

    def send(self, *pieces: bytes) -> None:
        """Sends each piece in its own segment, as far as TCP allows."""
        for piece in pieces:
            self.sock.sendall(piece)

    def fill(self) -> bool:
        """Reads once into `pending`; False at the end of the stream."""
        data = self.sock.recv(65536)
        self.pending += data
        self.received += data
        return bool(data)

    def take(self, n: int) -> bytes:
        taken = bytes(self.pending[:n])
        del self.pending[:n]
        return taken

    def read_exact(self, n: int) -> bytes:
        while len(self.pending) < n:
            if not self.fill():
                raise Closed(f"after {len(self.pending)} of {n} bytes")
        return self.take(n)

    def read_until(self, mark: bytes) -> bytes:
        while (at := self.pending.find(mark)) < 0:
            if not self.fill():
                raise Closed(f"before {mark!r}, after {bytes(self.pending)!r}")
        return self.take(at + len(mark))

    def read_rest(self) -> bytes:
        """Returns all bytes up to the peer's FIN."""
        while self.fill():
            pass
        return self.take(len(self.pending))

    def at_eof(self) -> bool:
        """Does the peer's FIN or reset come next, without a byte before it?"""
        try:
            return not self.pending and not self.fill()
        except ConnectionResetError:
            return True

    def is_silent(self, seconds: float) -> bool:
        """Does nothing arrive for this long, neither a byte nor FIN?"""
        self.sock.settimeout(seconds)
        try:
            return not self.pending and self.fill() and False
        except TimeoutError:
            return True
        finally:
            self.sock.settimeout(TIMEOUT)

    def half_close(self) -> None:
        self.sock.shutdown(socket.SHUT_WR)

    def reset(self) -> None:
        self.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
        self.close()

    def close(self) -> None:
        self.sock.close()

    # -- messages

    def read_head(self) -> Message:
        return Message.parse(self.read_until(b"\r\n\r\n"))

    def read_request(self) -> Message:
        message = self.read_head()
        self._read_body(message, until_close=False)
        return message

    def read_response(self, method: str = "GET", interim: bool = False) -> Message:
        """Returns the next final response, or with `interim` the next of any status."""
        while True:
            message = self.read_head()
            assert message.start[0] in ("HTTP/1.1", "HTTP/1.0"), message.raw
            if message.status >= 200 or message.status == 101 or interim:
                break
        bodiless = message.status < 200 or message.status in (204, 304)
        if not (
            bodiless
            or method == "HEAD"
            or (method == "CONNECT" and message.status < 300)
        ):
            self._read_body(message, until_close=True)
        return message

    def _read_body(self, message: Message, until_close: bool) -> None:
        length = message.get("Content-Length")
        if message.get("Transfer-Encoding") is not None:
            assert length is None, "Transfer-Encoding beside Content-Length (R7)"
            assert message.get("Transfer-Encoding") == "chunked"
            message.framing = "chunked"
            message.body, message.trailers = self._read_chunks()
        elif length is not None:
            message.framing = "length"
            message.body = self.read_exact(int(length))
        elif until_close:
            message.framing = "close"
            message.body = self.read_rest()

    def _read_chunks(self) -> tuple[bytes, list[tuple[str, str]]]:
        body = bytearray()
        while size := int(self.read_until(b"\r\n").split(b";")[0], 16):
            body += self.read_exact(size)
            assert self.read_exact(2) == b"\r\n"
        trailers = []
        while line := self.read_until(b"\r\n")[:-2]:
            trailers.append(split_field(line.decode("latin-1")))
        return bytes(body), trailers


def chunked(pieces: Iterable[bytes]) -> bytes:
    """Returns a whole chunked body."""
    return b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"
