"""Frames of HTTP/2 as a hostile origin sends them."""

import hpack

from tests.support.http2 import END_HEADERS, END_STREAM, HEADERS, frame

PUSH = 5
OKAY = (":status", "200")
SIX = ("content-length", "6")


def encode(*fields: tuple[str, str]) -> bytes:
    return hpack.Encoder().encode(fields)


def head(stream: int, *fields: tuple[str, str], ends: bool = False) -> bytes:
    return frame(HEADERS, END_HEADERS | (END_STREAM if ends else 0), stream,
                 encode(*fields))
