"""An origin of HTTP/2 that sends what is costly loses a stream, or its connection."""

import errno

import hpack
import pytest

from tests.support.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PING,
    PROTOCOL_ERROR,
    RST_STREAM,
    SETTINGS,
    frame,
)

GET = b"GET /c?d HTTP/1.1\r\nHost: a.b\r\nVia: 1.1 p\r\n\r\n"
OKAY = [(":status", "200")]
BROKE_RULES = -errno.EPROTO             # STREAM_BROKE_RULES of net/multiplex.pxd


@pytest.mark.parametrize("is_trailer", [False, True], ids=["head", "trailer"])
def test_a_bomb_of_indexed_fields_is_not_read_to_its_end(way, is_trailer) -> None:
    """The library looked at 4 KiB for each octet: a head kept the worker for 170 ms."""
    both = way(head_bytes=16384)
    number, stream = both.ask(GET)
    encoder = hpack.Encoder()
    if is_trailer:
        both.theirs.send(frame(HEADERS, END_HEADERS, number, encoder.encode(OKAY)))
        both.hear()
        assert stream.recv().startswith(b"HTTP/1.1 200")
    block = encoder.encode([*([] if is_trailer else OKAY), ("x", "y" * 3000)])
    flags = END_STREAM if is_trailer else 0
    both.theirs.send(frame(HEADERS, flags, number, block + b"\xbe" * 12))
    both.hear()             # the block goes on, and the stream is lost already
    assert both.origin.questions[number].reset == PROTOCOL_ERROR
    assert stream.recv() == BROKE_RULES
    both.theirs.send(frame(CONTINUATION, END_HEADERS, number, b"\xbe" * 12_000))
    other, answered = both.ask(GET)
    both.origin.h2.send_headers(other, OKAY, end_stream=True)
    both.hear()
    assert answered.recv().startswith(b"HTTP/1.1 200")


FLOODS = {
    "ping": (frame(PING, 0, 0, bytes(8)) * 1100, "flood"),
    "settings": (frame(SETTINGS) * 1100, "flood"),
    "empty data": (frame(DATA, 0, 1) * 1100, "flood"),
    "resets": (frame(RST_STREAM, 0, 1, bytes(4)) * 600, "resets"),
    "continuation": (frame(HEADERS, 0, 1) + frame(CONTINUATION, 0, 1, b"\0") * 20,
                     "headers"),
}


@pytest.mark.parametrize("flood, word", FLOODS.values(), ids=FLOODS)
def test_floods_end_the_connection(way, flood, word) -> None:
    both = way()
    both.ask(GET)
    both.theirs.setblocking(True)
    both.theirs.sendall(flood)
    heard = "all"
    for _ in range(20):
        heard = both.carrier.hear()[0]
        if heard not in ("all", "some"):
            break
    assert heard == word
