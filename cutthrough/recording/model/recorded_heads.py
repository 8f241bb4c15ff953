"""Heads of messages as bytes: read into a recording's fields, and built from them.

A request's head is the one that goes to the origin, Host first and our Via last, in
recordings and in requests to be answered alike. Fields of the hop are left out.
"""

import re
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from cutthrough.recording.model.recording import (
    Fields,
    Recording,
    Request,
    Response,
    find,
)
from cutthrough.recording.model.sluices import PIECE, frame

_HOP = {"connection", "keep-alive", "proxy-connection", "proxy-authenticate",
        "proxy-authorization", "te", "transfer-encoding", "upgrade"}
_ITSELF = ("keep-alive", "upgrade")       # that are in _HOP
_NO_BODY = (204, 304)
# Not of gRPC-Web: its request is sent before the answer
_CALL = re.compile(r"\r\ncontent-type:[ \t]*application/grpc[ \t]*[+;\r]", re.I)
# What a client reads as these fields and no others
_FIELDS = r"(?:[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\0\r\n]*\r\n)*"
_HEAD = re.compile(rf"HTTP/1\.1 \d+ [^\0\r\n]*\r\n{_FIELDS}\r\n")
_LINES = re.compile(_FIELDS)
_PHRASES = {int(status): status.phrase for status in HTTPStatus}


class NotSent(ValueError):
    """An answer of a file, a template or a hook has a line end where none may be."""


# The readings of heads, and of requests' heads without their first line. In a batch
# many are equal; behind the batch it is dropped, because it has secrets
HeadCache = dict[str, Any]


def read_request(head: str, scheme: str, host: str, port: int, body: bytes = b"", *,
                 fields: bool = True, heads: HeadCache | None = None) -> Request:
    """`fields`: they are wanted."""
    end = head.index("\r\n")
    method, target, protocol = head[:end].split(" ")
    path, _, query = target.partition("?")
    return Request(method=method, scheme=scheme, host=host, port=port, path=path,
                   query=query, protocol=protocol, body=body,
                   fields=_of_request(head[end:], heads) if fields else ())


def _of_request(lines: str, heads: HeadCache | None) -> Fields:
    fields: Fields | None = None if heads is None else heads.get(lines)
    if fields is None:
        pairs = _end_to_end(lines)
        if pairs and pairs[-1][0].lower() == "via":
            del pairs[-1]
        fields = tuple([pair for pair in pairs if pair[0].lower() != "host"])
        if heads is not None:
            heads[lines] = fields
    return fields


def is_call(head: str) -> bool:
    """Whether this head of a request is one of gRPC's: both sides may talk in turn."""
    return "application/grpc" in head and _CALL.search(head) is not None


def read_response(head: str, heads: HeadCache | None = None
                  ) -> tuple[int, str, str, Fields]:
    """Status, reason, protocol and fields."""
    reading: tuple[int, str, str, Fields] | None = (
        None if heads is None else heads.get(head))
    if reading is None:
        protocol, _, rest = head[:head.index("\r\n")].partition(" ")
        status, _, reason = rest.partition(" ")
        reading = int(status), reason, protocol, tuple(_end_to_end(head))
        if heads is not None:
            heads[head] = reading
    return reading


def end_to_end(fields: Iterable[tuple[str, str]]) -> Fields:
    """Without fields of the hop, whatever Connection names among them."""
    return tuple(_end_to_end("".join(
        [f"\r\n{name}: {value}" for name, value in fields])))


def _end_to_end(head: str) -> list[tuple[str, str]]:
    fields, named = [], ""
    for line in head.split("\r\n")[1:]:
        name, colon, value = line.partition(":")
        kind = name.lower()
        if kind == "connection":
            named += f",{value}"
        elif colon and kind not in _HOP:
            fields.append((name, value.strip(" \t")))
    if named and named.lower().strip(", \t") not in _ITSELF:
        options = {option.strip().lower() for option in named.split(",")}
        return [field for field in fields if field[0].lower() not in options]
    return fields


def has_body(method: str, status: int) -> bool:
    return method != "HEAD" and status not in _NO_BODY and status >= 200


def build_head(response: Response, method: str, minor: int) -> tuple[bytes, bool]:
    """The head of a replayed answer, for a client of HTTP/1.`minor`. True: its body is
    to be sent in chunks. Raises NotSent, also for its trailers."""
    fields, status = response.fields, response.status
    length = find(fields, "content-length")
    drops, framing = False, ""
    if has_body(method, status) and (
            response.trailers or response.is_cut or length != str(size_of(response))):
        drops = length != ""
        framing = "Transfer-Encoding: chunked\r\n" if minor else ""
    elif length and not length.isdigit():
        drops = True
    if drops:
        fields = tuple(
            field for field in fields if field[0].lower() != "content-length")
    lines = "\r\n".join(map(": ".join, fields)) + "\r\n" if fields else ""
    reason = response.reason or _PHRASES.get(status, "")
    text = f"HTTP/1.1 {status} {reason}\r\n{lines}{framing}\r\n"
    if _HEAD.fullmatch(text) is None or (
            text.count("\n") != 2 + len(fields) + (framing != "")):
        raise NotSent("a field has no name, or it or the reason has a line end")
    trailers = _lines(response.trailers)
    if _LINES.fullmatch(trailers) is None or (
            trailers.count("\n") != len(response.trailers)):
        raise NotSent("a trailer has no name, or a line end")
    return text.encode("latin-1", "replace"), framing != ""


# Bytes around each chunk of an answer: its size in hexadecimal, and two line ends
OF_CHUNK = 8


def size_sent(response: Response) -> int:
    """Returns the most bytes of the body with its framing: chunks of one byte are sent
    as six."""
    return (size_of(response) + OF_CHUNK * len(response.chunks)
            + sum([len(name) + len(value) + 4 for name, value in response.trailers]))


def takes_time(recording: Recording, speed: float) -> bool:
    """Is the answer not sent at once, or not in one piece, or not whole?"""
    response = recording.response
    return bool(speed or recording.delay_us or response.is_cut
                or size_sent(response) > PIECE)


def size_of(response: Response) -> int:
    """Bytes of the body."""
    chunks = response.chunks
    return len(chunks[0].data) if len(chunks) == 1 else sum(
        [len(chunk.data) for chunk in chunks])


def build_trailers(fields: Fields) -> bytes:
    """The end of a body in chunks."""
    return f"0\r\n{_lines(fields)}\r\n".encode("latin-1", "replace")


def _lines(fields: Fields) -> str:
    return "".join([f"{name}: {value}\r\n" for name, value in fields])


def build_body(response: Response, method: str, chunked: bool) -> bytes:
    """As it is sent behind a head of `build_head`."""
    if not has_body(method, response.status):
        return b""
    if not chunked:
        return response.body
    pieces = [chunk.data for chunk in response.chunks if chunk.data]
    return b"".join(map(frame, pieces)) + build_trailers(response.trailers)
