"""Frames and fields of HTTP/2 as hostile peers send them."""

import hpack

from tests.http2.requests import GET, TUNNEL
from tests.support.http2 import END_HEADERS, END_STREAM, HEADERS, frame

PUSH = 5
OKAY = (":status", "200")
SIX = ("content-length", "6")
MALFORMED = {
    "upper case": (*GET, ("X-Y", "z")),
    "connection": (*GET, ("connection", "close")),
    "transfer-encoding": (*GET, ("transfer-encoding", "chunked")),
    "te": (*GET, ("te", "gzip")),
    "pseudo-field twice": (*GET[:1], *GET),
    "pseudo-field behind a field": (*GET[:3], ("x", "y"), GET[3]),
    "no method": GET[1:],
    "no path": GET[:3],
    "empty path": (*GET[:3], (":path", "")),
    "CONNECT with a path": (*TUNNEL, (":path", "/")),
    "space in a name": (*GET, ("x y", "z")),
    "length without a body": (*GET, ("content-length", "5")),
}


def encode(*fields: tuple[str, str]) -> bytes:
    return hpack.Encoder().encode(fields)


def head(stream: int, *fields: tuple[str, str], ends: bool = False) -> bytes:
    return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream,
                 encode(*fields))
