"""Frames that RFC 9113 does not allow: of closed streams, and priorities of no stream
(R89)."""

import pytest

from tests.http2.requests import GET, OKAY, POST
from tests.support.http2 import (
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PRIORITY,
    PROTOCOL_ERROR,
    RST_STREAM,
    STREAM_CLOSED,
    WINDOW_UPDATE,
    frame,
)


def goaway(both, data: bytes) -> int | None:
    """The code with which the connection ends after these octets; None: it goes on."""
    both.flush()
    both.theirs.sendall(data)
    both.heard()
    both.look()
    return both.peer.goaway and both.peer.goaway[0]


def ended(both) -> int:
    """A stream that both sides have ended."""
    number, stream = both.begin(*GET)
    stream.recv()
    stream.send(OKAY, b"hello")
    both.look()
    assert both.peer.answers[number].ended
    return number


def block(both) -> bytes:
    return both.peer.h2.encoder.encode(GET)


@pytest.mark.parametrize("kind", [DATA, HEADERS])
def test_a_stream_that_has_ended_takes_no_further_frame(couple, kind) -> None:
    both = couple()
    number = ended(both)
    flags, data = (0, b"more") if kind == DATA else (
        END_HEADERS | END_STREAM, block(both))
    assert goaway(both, frame(kind, flags, number, data)) == STREAM_CLOSED


@pytest.mark.parametrize("kind", [DATA, HEADERS])
def test_nor_does_one_that_its_client_has_reset(couple, kind) -> None:
    both = couple()
    number, _ = both.begin(*POST, ends=False)
    both.peer.h2.reset_stream(number, CANCEL)
    both.hear()
    flags, data = (0, b"more") if kind == DATA else (
        END_HEADERS | END_STREAM, block(both))
    assert goaway(both, frame(kind, flags, number, data)) == STREAM_CLOSED


def test_data_behind_a_reset_in_one_segment(couple) -> None:
    both = couple()
    assert goaway(both, b"".join((
        frame(HEADERS, END_HEADERS, 1, both.peer.h2.encoder.encode(POST)),
        frame(DATA, 0, 1, b"some"),
        frame(RST_STREAM, 0, 1, bytes([0, 0, 0, CANCEL])),
        frame(DATA, 0, 1, b"more")))) == STREAM_CLOSED


def test_a_stream_that_was_passed_over_cannot_be_begun(couple) -> None:
    """RFC 9113 section 5.1.1; other streams were begun: this may be their trailers."""
    both = couple()
    assert goaway(both, frame(HEADERS, END_HEADERS, 1, block(both)) + frame(
        HEADERS, END_HEADERS, 7, block(both))) is None
    for number in (1, 7):
        trailers = both.peer.h2.encoder.encode([("x", "y")])
        assert goaway(both, frame(
            HEADERS, END_HEADERS | END_STREAM, number, trailers)) is None
    assert goaway(both, frame(
        HEADERS, END_HEADERS | END_STREAM, 3, block(both))) == PROTOCOL_ERROR


def test_what_may_be_on_its_way_is_no_fault(couple) -> None:
    """A stream that we have reset, and frames that any stream may have in the end."""
    both = couple()
    number, stream = both.begin(*POST, ends=False)
    stream.recv()
    stream.close()
    both.look()
    assert both.peer.answers[number].reset is not None
    assert goaway(both, frame(DATA, 0, number, b"more")) is None
    number = ended(both)
    assert goaway(both, b"".join((
        frame(WINDOW_UPDATE, 0, number, bytes([0, 0, 0, 1])),
        frame(PRIORITY, 0, number, bytes(5)),
        frame(RST_STREAM, 0, number, bytes([0, 0, 0, CANCEL]))))) is None
    assert ended(both) > number


def test_many_streams_end_and_their_connection_goes_on(couple) -> None:
    both = couple()
    for _ in range(30):
        number = ended(both)
    assert goaway(both, frame(DATA, 0, 1, b"x")) is None, "it is not remembered"
    assert goaway(both, frame(DATA, 0, number, b"x")) == STREAM_CLOSED


def test_a_priority_of_no_stream_ends_the_connection(couple) -> None:
    both = couple()
    both.begin(*GET)
    assert goaway(both, frame(PRIORITY, 0, 0, bytes(5))) == PROTOCOL_ERROR


@pytest.mark.parametrize("number", [1, 3, 0x123457])
@pytest.mark.parametrize("step", [1, 5, 100])
def test_a_stream_that_depends_on_itself_ends_the_connection(
        couple, number, step) -> None:
    """RFC 7540 section 5.3.1."""
    both = couple()
    both.begin(*GET)
    for other in (number + 2, number ^ 1, number + (1 << 24), 0):
        data = frame(PRIORITY, 0, number, other.to_bytes(4) + b"\x0f")
        assert goaway(both, data) is None
    data = frame(PRIORITY, 0, number, (number | 1 << 31).to_bytes(4) + b"\x0f")
    codes = [goaway(both, data[at:at + step]) for at in range(0, len(data), step)]
    assert codes[-1] == PROTOCOL_ERROR
