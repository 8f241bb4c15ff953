"""Streams towards an origin: requests of HTTP/1.1 go out, responses come (R62)."""

import errno

import hpack
import pytest

from tests.http2.requests import read_all
from tests.support.http2 import (
    CANCEL,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
    frame,
)

GET = b"GET /c?d HTTP/1.1\r\nHost: a.b\r\nVia: 1.1 p\r\n\r\n"
POST = b"POST /c HTTP/1.1\r\nHost: a.b\r\nContent-Length: 5\r\n\r\n"
CHUNKED = b"POST /c HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n"
OKAY = [(":status", "200")]
HEAD = b"HTTP/1.1 200 \r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
GONE = -errno.ECONNRESET
BROKE_RULES = -errno.EPROTO             # STREAM_BROKE_RULES of net/multiplex.pxd


def encode(*fields: tuple[str, str]) -> bytes:
    return hpack.Encoder().encode(fields)


def test_a_request_and_its_response(way) -> None:
    both = way()
    number, stream = both.ask(GET)
    question = both.origin.questions[number]
    assert question.fields == [
        (":method", "GET"), (":scheme", "https"), (":authority", "a.b"),
        (":path", "/c?d"), ("te", "trailers"), ("via", "1.1 p")]
    assert question.ended
    assert stream.recv() == -errno.EAGAIN
    both.origin.answer(number, [*OKAY, ("x-y", "z")], b"hello")
    assert both.hear() == [stream]
    assert read_all(stream) == (
        b"HTTP/1.1 200 \r\nx-y: z\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
    assert stream.recv() == b""
    stream.close()
    both.look()
    assert question.reset is None
    assert both.carrier.count == 0


def test_nothing_is_pushed(way) -> None:
    both = way()
    assert both.origin.settings[2] == 0
    number, _ = both.ask(GET)
    both.theirs.send(frame(5, END_HEADERS, number, bytes([0, 0, 0, 2]) + encode(
        (":method", "GET"), (":scheme", "https"), (":authority", "a.b"),
        (":path", "/"))))
    assert both.carrier.hear()[0] == "fault"


@pytest.mark.parametrize("request_, body, trailers", [
    (POST + b"hello", b"hello", None),
    (CHUNKED + b"3\r\nabc\r\nA;x=y\r\ndefghijklm\r\n0\r\n\r\n", b"abcdefghijklm",
     None),
    (CHUNKED + b"3\r\nabc\r\n0\r\nX-T: u\r\n\r\n", b"abc", [("x-t", "u")]),
    (CHUNKED + b"0\r\n\r\n", b"", None),
    (GET, b"", None)], ids=["length", "chunks", "trailers", "empty", "none"])
def test_a_request_at_every_split(way, request_, body, trailers) -> None:
    both = way()
    for at in range(1, len(request_) + 1):
        if at < len(request_):
            number, stream = both.ask(request_[:at], request_[at:])
        else:
            number, stream = both.ask(*(bytes([octet]) for octet in request_))
        question = both.origin.questions[number]
        assert dict(question.fields)[":authority"] == "a.b"
        assert (question.body, question.trailers) == (body, trailers)
        assert question.ended
        stream.close()
        both.look()
        assert question.reset == CANCEL


def test_the_origins_bytes_at_every_split(way) -> None:
    """Interim heads, a body, trailers, and a head alone, one octet at a time."""
    both = way()
    first, one = both.ask(GET)
    second, two = both.ask(POST, b"hello")
    origin = both.origin.h2
    origin.send_headers(first, [(":status", "103"), ("link", "x")])
    origin.send_headers(first, OKAY)
    origin.send_data(first, b"abc")
    origin.send_data(first, b"defgh", pad_length=9)
    origin.send_headers(second, [(":status", "404")], end_stream=True)
    origin.send_headers(first, [("grpc-status", "0")], end_stream=True)
    text = {one: b"", two: b""}
    for octet in origin.data_to_send():
        both.theirs.send(bytes([octet]))
        heard, due = both.carrier.hear()
        assert heard == "all"
        for stream in due:
            text[stream] += read_all(stream)
    assert text[one] == (
        b"HTTP/1.1 103 \r\nlink: x\r\n\r\n" + HEAD
        + b"".join(b"1\r\n%c\r\n" % octet for octet in b"abcdefgh")
        + b"0\r\ngrpc-status: 0\r\n\r\n")
    assert text[two] == (
        b"HTTP/1.1 404 \r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.mark.parametrize("n", [1, 2, 3, 7, 100])
def test_interim_heads_and_the_response_in_pieces(way, n) -> None:
    both = way()
    number, stream = both.ask(GET)
    for _ in range(3):
        both.origin.h2.send_headers(number, [(":status", "103")])
    both.origin.answer(number, OKAY, b"x" * 300, [("x-t", "u")])
    both.hear()
    assert read_all(stream, n) == (
        3 * b"HTTP/1.1 103 \r\n\r\n" + HEAD + b"12c\r\n" + b"x" * 300
        + b"\r\n0\r\nx-t: u\r\n\r\n")


def test_both_directions_at_a_time(way) -> None:
    """As in gRPC: the response begins before the request has ended."""
    both = way()
    number, stream = both.ask(CHUNKED, b"3\r\none\r\n")
    question = both.origin.questions[number]
    assert question.body == b"one"
    both.origin.answer(number, OKAY, b"1", ends=False)
    both.hear()
    assert read_all(stream) == HEAD + b"1\r\n1\r\n"
    stream.send(b"3\r\ntwo\r\n")
    both.look()
    assert question.body == b"onetwo"
    stream.send(b"0\r\n\r\n")
    both.look()
    assert question.ended
    both.origin.h2.send_headers(number, [("grpc-status", "0")], end_stream=True)
    both.hear()
    assert read_all(stream) == b"0\r\ngrpc-status: 0\r\n\r\n"


def test_an_origin_that_reads_nothing_stops_the_request(way) -> None:
    both = way(credit=False)
    number, stream = both.ask(
        b"POST / HTTP/1.1\r\nHost: a.b\r\nContent-Length: 200000\r\n\r\n")
    taken = stream.send(b"x" * 200_000)
    both.look()
    assert taken == len(both.origin.questions[number].body) == 65535
    assert stream.send(b"x") == 0
    assert not stream.can_write
    both.origin.h2.increment_flow_control_window(100)
    both.origin.h2.increment_flow_control_window(100, number)
    assert both.hear() == [stream]
    assert stream.can_write
    assert stream.send(b"x" * 1000) == 100


def test_a_reader_that_is_slow_holds_its_own_window_alone(way) -> None:
    both = way()
    slow, one = both.ask(GET)
    quick, two = both.ask(GET)
    both.origin.answer(slow, OKAY, b"x" * 16000, ends=False)
    for _ in range(3):
        both.origin.h2.send_data(slow, b"x" * 16000)
    both.hear()
    assert both.origin.h2.local_flow_control_window(slow) < 16000
    both.origin.answer(quick, OKAY, b"y" * 16000)
    both.hear()
    assert len(read_all(two)) > 16000
    assert len(read_all(one)) > 64000
    both.look()
    assert both.origin.h2.local_flow_control_window(slow) > 32000


def test_requests_beyond_the_origins_bound_wait(way) -> None:
    both = way(most=1)
    first, one = both.ask(GET)
    two, three = both.carrier.ask(), both.carrier.ask()
    assert two.send(POST) == len(POST)
    assert two.send(b"hel") == 0
    assert three.send(GET) == len(GET)
    both.look()
    assert list(both.origin.questions) == [0, first]
    three.close()
    both.origin.answer(first, [(":status", "204")])
    due = both.hear()
    assert due == [one, two]
    assert two.send(b"hello") == 5
    both.look()
    _, *questions = both.origin.questions.values()
    assert [(bytes(one.body), one.ended) for one in questions] == [
        (b"", True), (b"hello", True)]
    both.origin.answer(max(both.origin.questions), [(":status", "204")])
    both.hear()
    assert two.recv().startswith(b"HTTP/1.1 204 ")


def test_requests_that_wait_are_bounded(way) -> None:
    """Streams that were given up count, too: the library keeps them."""
    both = way(most=1, streams=3)
    both.ask(GET)
    for _ in range(3):
        stream = both.carrier.ask()
        stream.send(GET)
        stream.close()
    assert both.carrier.ask() is None
    assert both.carrier.count == 1


def test_another_streams_end_begins_one_that_waits(way) -> None:
    both = way(most=1)
    _, one = both.ask(GET)
    two = both.carrier.ask()
    two.send(POST)
    two.send(b"hello")
    assert not both.carrier.is_due
    one.close()
    assert both.carrier.is_due
    assert both.carrier.take_due() == [two]
    assert two.send(b"hello") == 5


def test_streams_are_bounded(way) -> None:
    both = way(streams=2)
    assert both.carrier.ask() and both.carrier.ask()
    assert both.carrier.ask() is None


# --- the end


@pytest.mark.parametrize("code, unread", [(REFUSED_STREAM, True), (CANCEL, False)])
def test_a_reset_by_the_origin(way, code, unread) -> None:
    both = way()
    number, stream = both.ask(GET)
    both.origin.h2.reset_stream(number, code)
    assert both.hear() == [stream]
    assert stream.recv() == GONE
    assert both.carrier.is_unread(stream) == unread


def test_a_reset_comes_behind_what_was_sent(way) -> None:
    both = way()
    number, stream = both.ask(GET)
    both.origin.answer(number, OKAY, b"abc", ends=False)
    both.origin.h2.reset_stream(number, CANCEL)
    both.hear()
    assert stream.recv() == HEAD + b"3\r\nabc\r\n"
    assert stream.recv() == GONE


def test_an_answer_before_the_request_has_ended(way) -> None:
    """RFC 9113 section 8.1: the rest of the request is reset by NO_ERROR."""
    both = way()
    number, stream = both.ask(CHUNKED)
    both.origin.answer(number, [(":status", "413"), ("content-length", "2")], b"no")
    both.origin.h2.reset_stream(number, 0)
    both.hear()
    assert stream.send(b"3\r\nabc\r\n") == GONE
    assert stream.recv() == (
        b"HTTP/1.1 413 \r\ncontent-length: 2\r\nConnection: close\r\n\r\nno")


def test_a_goaway_says_which_requests_were_not_read(way) -> None:
    both = way()
    first, one = both.ask(GET)
    _, two = both.ask(GET)
    both.theirs.send(frame(GOAWAY, 0, 0, bytes([0, 0, 0, first, 0, 0, 0, 0])))
    assert both.hear() == [two]
    assert both.carrier.is_unread(two)
    assert both.carrier.ask() is None
    both.origin.answer(first, [(":status", "204")])
    heard, due = both.carrier.hear()
    assert (heard, due) == ("end", [one])
    assert one.recv().startswith(b"HTTP/1.1 204 ")
    assert not both.carrier.is_unread(one)


def test_a_goaway_ends_requests_that_wait(way) -> None:
    both = way(most=1)
    first, _ = both.ask(GET)
    two = both.carrier.ask()
    two.send(GET)
    both.theirs.send(frame(GOAWAY, 0, 0, bytes([0, 0, 0, first, 0, 0, 0, 0])))
    assert both.hear() == [two]
    assert two.recv() == GONE
    assert both.carrier.is_unread(two)


def test_the_end_of_the_connection_is_a_reset_of_each_stream(way) -> None:
    both = way()
    _, stream = both.ask(GET)
    both.theirs.close()
    assert both.carrier.hear()[0] in ("end", "reset")
    assert both.carrier.lose("reset") == [stream]
    assert stream.recv() == GONE
    assert not both.carrier.is_unread(stream)


# --- hostile origins


MALFORMED = {
    "no status": [("x", "y")],
    "status twice": [*OKAY, *OKAY],
    "101": [(":status", "101")],
    "interim": [(":status", "103")],
    "upper case": [*OKAY, ("X-Y", "z")],
    "connection": [*OKAY, ("connection", "close")],
    "transfer-encoding": [*OKAY, ("transfer-encoding", "chunked")],
    "pseudo-field of a request": [*OKAY, (":path", "/")],
    "line end in a value": [*OKAY, ("x", "y\r\nz: 1")],
    "length without a body": [*OKAY, ("content-length", "5")],
    "length that is none": [*OKAY, ("content-length", "5x")],
    "two lengths": [*OKAY, ("content-length", "0"), ("content-length", "5")],
}


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_response_is_a_fault_of_its_stream(way, fields) -> None:
    both = way()
    number, stream = both.ask(GET)
    other, second = both.ask(GET)
    both.theirs.send(frame(HEADERS, END_STREAM | END_HEADERS, number, encode(*fields)))
    both.hear()
    assert both.origin.questions[number].reset == PROTOCOL_ERROR
    while isinstance(got := stream.recv(), bytes):
        assert got
    assert got == BROKE_RULES
    both.origin.answer(other, OKAY)
    both.hear()
    assert second.recv().startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("sent, ends", [(b"abcdefg", False), (b"abc", True)])
def test_a_body_of_another_length_is_no_whole_one(way, sent, ends) -> None:
    both = way()
    number, stream = both.ask(GET)
    both.origin.answer(number, [*OKAY, ("content-length", "6")], sent, ends=ends)
    both.hear()
    got = b""
    while isinstance(piece := stream.recv(), bytes):
        assert piece
        got += piece
    assert piece == BROKE_RULES
    assert len(got.partition(b"\r\n\r\n")[2]) < 6 or not ends


def test_white_space_around_a_value_is_taken_off(way) -> None:
    both = way()
    number, stream = both.ask(GET)
    both.theirs.send(frame(
        HEADERS, END_STREAM | END_HEADERS, number, encode(*OKAY, ("x", " y "))))
    both.hear()
    assert stream.recv().startswith(b"HTTP/1.1 200 \r\nx: y\r\n")


def test_frames_behind_the_end_reach_no_stream(way) -> None:
    both = way()
    number, stream = both.ask(GET)
    both.origin.answer(number, OKAY, b"abc")
    both.theirs.send(frame(DATA, 0, number, b"more"))
    heard = both.carrier.hear()[0]
    assert heard in ("all", "fault")
    assert read_all(stream) == HEAD + b"3\r\nabc\r\n0\r\n\r\n"


def test_interim_heads_are_bounded(way) -> None:
    both = way(head_bytes=4096)
    number, stream = both.ask(GET)
    for _ in range(100):
        both.origin.h2.send_headers(number, [(":status", "103"), ("link", "x" * 100)])
    both.hear()
    assert both.origin.questions[number].reset == PROTOCOL_ERROR
    assert len(read_all(stream)) <= 4096


def test_a_head_that_is_too_large_resets_its_stream(way) -> None:
    both = way(head_bytes=4096)
    number, stream = both.ask(GET)
    encoder = hpack.Encoder()
    block = encoder.encode([*OKAY, ("x", "y" * 3000)])
    block += encoder.encode([("x", "y" * 3000)]) * 20       # indexed: one octet each
    both.theirs.send(frame(HEADERS, END_HEADERS, number, block))
    both.hear()
    assert both.origin.questions[number].reset == PROTOCOL_ERROR
    assert stream.recv() == BROKE_RULES


@pytest.mark.parametrize("head", [
    b"CONNECT a.b:443 HTTP/1.1\r\nHost: a.b\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a.b\r\nContent-Length: x\r\n\r\n"])
def test_a_request_that_http2_has_not_is_a_fault(way, head) -> None:
    both = way()
    stream = both.carrier.ask()
    assert stream.send(head) == -errno.EPIPE
    stream.close()
    both.look()
    assert list(both.origin.questions) in ([], [0])
