"""A raw client of the proxy: sends given bytes, and reads the answer."""

import base64
import socket

from tests.support.stream import Message, Stream

USER, PASSWORD = "user", "pass:word"
CREDENTIALS = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
WRONG = "Basic " + base64.b64encode(b"user:guess").decode()
AUTH = f"Proxy-Authorization: {CREDENTIALS}\r\n"


def host_of(url: str) -> str:
    return url.removeprefix("http://").partition("/")[0]


def build_request(
    method: str,
    url: str,
    *fields: str,
    body: bytes = b"",
    auth: str | None = CREDENTIALS,
    host: str | None = None,
    version: str = "HTTP/1.1",
) -> bytes:
    """Returns a request in absolute form; `fields` are lines without CRLF."""
    lines = [f"{method} {url} {version}", f"Host: {host or host_of(url)}"]
    if auth is not None:
        lines.append(f"Proxy-Authorization: {auth}")
    return "\r\n".join((*lines, *fields, "", "")).encode("latin-1") + body


class Client(Stream):
    """One connection to the proxy."""

    def __init__(
        self, port: int, host: str = "127.0.0.1", receive_buffer: int = 0,
        source: str = "", connect_s: float = 10.0,
    ) -> None:
        """`source`: the local address to connect from. `host` may be a path.
        `connect_s`: the longest wait for the connection."""
        family = socket.AF_UNIX if host.startswith("/") else (
            socket.AF_INET6 if ":" in host else socket.AF_INET)
        sock = socket.socket(family)
        if receive_buffer:  # before connect: it bounds the advertised window
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.settimeout(connect_s)
        try:
            if source:
                sock.bind((source, 0))
            sock.connect(host if family == socket.AF_UNIX else (host, port))
        except OSError:
            sock.close()
            raise
        super().__init__(sock)

    def ask(self, method: str, url: str, *fields: str, **more: object) -> Message:
        """Sends one request, and returns its whole final response."""
        self.send(build_request(method, url, *fields, **more))  # type: ignore[arg-type]
        return self.read_response(method)

    def get(self, url: str, *fields: str, **more: object) -> Message:
        return self.ask("GET", url, *fields, **more)

    def connect(
        self, authority: str, early: bytes = b"", auth: str | None = CREDENTIALS
    ) -> Message:
        """Sends CONNECT, with `early` after the head in the same segment."""
        head = build_request("CONNECT", authority, auth=auth, host=authority)
        self.send(head + early)
        return self.read_response("CONNECT")

    def tunnel(self, authority: str, early: bytes = b"") -> "Client":
        reply = self.connect(authority, early)
        assert reply.status == 200, reply.raw
        return self
