"""Heads of messages as bytes: read into a Flow's fields, and built from them again.

The proxy's own code has read and checked every head that comes here, and reads every
head that is built here as if a client or an origin had sent it.
"""

from collections.abc import Iterable
from http import HTTPStatus

from cutthrough.filters.flow import FRAMING, Headers, Request, Response

_PHRASES = {int(status): status.phrase for status in HTTPStatus}


def read_request(head: bytes, host: str, port: int, version: str,
                 scheme: str) -> Request:
    """From the head that would go up: Host first, last our Via or a line for it."""
    first, _, lines = head.decode("latin-1").split("\r\n", 2)
    method, path, _ = first.split(" ")
    return Request(method, host, port, path, _but_last(lines), version, scheme)


def read_connect(head: bytes, host: str, port: int) -> Request:
    """The same of a CONNECT, which has no path; b"": of a tunnel without a head."""
    lines = _but_last(head.decode("latin-1").split("\r\n", 2)[2]) if head else ""
    request = Request("CONNECT", host, port, "", lines, scheme="")
    request.fix("of a tunnel")
    return request


def read_response(head: bytes) -> Response:
    """From the head that would go down: last our Via, or a line for it."""
    first, lines = head.decode("latin-1").split("\r\n", 1)
    return Response(int(first[9:12]), None, first[13:], _but_last(lines))


def _but_last(lines: str) -> str:
    """These fields but the last, without the end of the head."""
    return lines[:max(0, lines.rfind("\r\n", 0, -4))]


def build_request(request: Request, framing: str) -> bytes:
    """In absolute form, as a client would send it. `framing`: fields with CRLF."""
    path = "" if request.path == "*" else request.path
    authority = request.authority
    fields = _lines(request.headers)
    return (f"{request.method} http://{authority}{path} HTTP/1.1\r\n"
            f"Host: {authority}\r\n{fields}{framing}\r\n").encode("latin-1")


def build_response(response: Response, framing: str) -> bytes:
    reason = response.reason or _PHRASES.get(response.status, "")
    return (f"HTTP/1.1 {response.status} {reason}\r\n"
            f"{_lines(response.headers)}{framing}\r\n").encode("latin-1")


def build_established(response: Response) -> bytes:
    """The head of a tunnel's 200, without fields of the framing, which a client would
    have to ignore (RFC 9110 section 9.3.6), or of the hop."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in response.headers
                     if name.lower() not in _NOT_OF_TUNNELS)
    return f"HTTP/1.1 200 {response.reason}\r\n{fields}\r\n".encode("latin-1")


def framing_of(headers: Headers) -> str:
    """The framing of the message as it came."""
    return "".join(f"{name}: {value}\r\n" for name, value in headers
                   if name.lower() in FRAMING)


def of_length(length: int) -> str:
    return f"Content-Length: {length}\r\n"


CHUNKED = "Transfer-Encoding: chunked\r\n"


def in_chunks(headers: Headers) -> str:
    """A framing that has room for the trailers that these fields announce."""
    return CHUNKED + "".join(f"Trailer: {value}\r\n" for value in
                             headers.get_all("Trailer"))


def read_trailers(lines: bytes) -> list[tuple[str, str]]:
    fields = (line.partition(":") for line in lines.decode("latin-1").split("\r\n"))
    return [(name, value.strip(" \t")) for name, colon, value in fields if colon]


def build_trailers(fields: Iterable[tuple[str, str]]) -> bytes:
    """The last chunk, with these fields behind it."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in fields)
    return f"0\r\n{lines}\r\n".encode("latin-1")


def _lines(headers: Headers) -> str:
    return "".join(f"{name}: {value}\r\n" for name, value in headers
                   if name.lower() not in _NOT_THEIRS)


# A client cannot have sent them here, and the proxy adds its own
_NOT_THEIRS = {*FRAMING, "host", "proxy-authorization", "proxy-connection",
               "keep-alive", "te"}
# A parser would take them for the message's end, or for this connection's
_NOT_OF_TUNNELS = {*_NOT_THEIRS, "connection", "upgrade", "proxy-authenticate"}
