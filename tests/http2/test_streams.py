"""Streams of HTTP/2 as a session has them: requests of HTTP/1.1, and answers (R62)."""

import errno
import socket

import pytest

from tests.http2.requests import ESTABLISHED, GET, OKAY, POST, TUNNEL, read_all
from tests.support.http2 import (
    CANCEL,
    CONNECT_ERROR,
    NO_ERROR,
    PREFACE,
    PROTOCOL_ERROR,
    REFUSED_STREAM,
)

HEAD = b"GET http://a.b/c HTTP/1.1\r\nHost: a.b\r\nConnection: close\r\n\r\n"
GONE = -errno.ECONNRESET
BROKE_RULES = -errno.EPROTO             # STREAM_BROKE_RULES of net/multiplex.pxd


def test_a_request_and_its_answer(couple) -> None:
    both = couple()
    number, stream = both.begin(*GET)
    assert stream.recv() == HEAD
    assert stream.recv() == b""
    reply = (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n"
             b"X-Y: z\r\n\r\n")
    assert stream.send(reply, b"hello") == len(reply) + 5
    both.look()
    answer = both.peer.answers[number]
    assert answer.heads == [{":status": "200", "content-length": "5", "x-y": "z"}]
    assert (answer.body, answer.ended) == (b"hello", True)
    stream.half_close()
    stream.close()
    assert both.carrier.count == 0


def test_the_clients_bytes_at_every_split(couple) -> None:
    """A head, a body, trailers and a second request, one octet at a time."""
    both = couple()
    first = both.peer.h2.get_next_available_stream_id()
    both.peer.h2.send_headers(first, POST)
    both.peer.h2.send_data(first, b"abc")
    both.peer.h2.send_data(first, b"defgh", pad_length=9)
    both.peer.h2.send_headers(first, [("x-t", "u")], end_stream=True)
    second = both.peer.h2.get_next_available_stream_id()
    both.peer.h2.send_headers(second, GET, end_stream=True)
    data = both.peer.h2.data_to_send()
    assert data.startswith(PREFACE)
    text = {}
    for octet in data:
        both.theirs.send(bytes([octet]))
        heard, due = both.carrier.hear()
        assert heard == "all"
        for stream in due:
            text[stream] = text.get(stream, b"") + read_all(stream)
    one, two = text.values()
    assert one == (
        b"POST http://a.b/c HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n"
        b"Connection: close\r\n\r\n"
        + b"".join(b"1\r\n%c\r\n" % octet for octet in b"abcdefgh")
        + b"0\r\nx-t: u\r\n\r\n")
    assert two == HEAD


@pytest.mark.parametrize("n", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("trailers", [(), (("x-t", "u"),)])
def test_a_body_read_in_pieces(couple, n, trailers) -> None:
    both = couple()
    number, stream = both.begin(*POST, ends=False)
    both.peer.send(number, b"x" * 300, ends=not trailers)
    if trailers:
        both.peer.h2.send_headers(number, trailers, end_stream=True)
    both.hear()
    _, _, body = read_all(stream, n).partition(b"\r\n\r\n")
    end = b"0\r\nx-t: u\r\n\r\n" if trailers else b"0\r\n\r\n"
    assert body == b"12c\r\n" + b"x" * 300 + b"\r\n" + end
    assert stream.recv() == b""


def test_a_body_with_a_length_comes_as_it_is(couple) -> None:
    both = couple()
    number, stream = both.begin(*POST, ("content-length", "6"), ends=False)
    both.peer.send(number, b"abc")
    both.hear()
    assert read_all(stream).endswith(b"\r\n\r\nabc")
    both.peer.send(number, b"def", ends=True)
    assert both.hear() == [stream]
    assert stream.recv() == b"def"
    assert stream.recv() == b""


@pytest.mark.parametrize("sent, ends", [(b"abcdefg", False), (b"abc", True)])
def test_a_body_of_another_length_resets_the_stream(couple, sent, ends) -> None:
    both = couple()
    number, stream = both.begin(*POST, ("content-length", "6"), ends=False)
    read_all(stream)
    both.peer.h2.send_data(number, sent, end_stream=ends)
    assert stream in both.hear()
    assert both.peer.answers[number].reset == PROTOCOL_ERROR
    while isinstance(got := stream.recv(), bytes):
        assert got
    assert got == BROKE_RULES
    assert stream.send(b"HTTP/1.1 200 OK\r\n\r\n") == BROKE_RULES


def test_a_tunnel_both_ways(couple) -> None:
    both = couple()
    number, stream = both.begin(*TUNNEL, ends=False)
    assert stream.recv().startswith(b"CONNECT a.b:443 HTTP/1.1\r\n")
    assert stream.recv() == -errno.EAGAIN
    assert not stream.can_read
    assert stream.send(ESTABLISHED) == len(ESTABLISHED)
    both.look()
    assert both.peer.answers[number].heads == [{":status": "200"}]
    both.peer.send(number, b"up")
    assert both.hear() == [stream]
    assert stream.peek() == b"up"
    assert stream.skip(1) == 1
    assert stream.recv() == b"p"
    assert stream.send(b"down") == 4
    both.look()
    assert both.peer.answers[number].body == b"down"
    both.peer.send(number, b"", ends=True)
    assert both.hear() == [stream]
    assert stream.recv() == b""
    assert stream.send(b"more") == 4        # half-closed: the other way goes on
    stream.half_close()
    both.look()
    assert both.peer.answers[number].body == b"downmore"
    assert both.peer.answers[number].ended
    stream.close()
    assert both.peer.answers[number].reset is None


def test_our_end_first(couple) -> None:
    both = couple()
    number, stream = both.begin(*TUNNEL, ends=False)
    stream.send(ESTABLISHED)
    stream.half_close()
    both.look()
    assert both.peer.answers[number].ended
    both.peer.send(number, b"late", ends=True)
    both.hear()
    assert read_all(stream).endswith(b"\r\n\r\nlate")
    stream.close()


# --- ends


def test_an_abortive_close_of_a_tunnel(couple) -> None:
    both = couple()
    number, stream = both.begin(*TUNNEL, ends=False)
    stream.send(ESTABLISHED)
    stream.send(b"last bytes")
    stream.set_abortive()
    stream.close()
    both.look()
    assert both.peer.answers[number].body == b"last bytes"
    assert both.peer.answers[number].reset == CONNECT_ERROR


def test_a_close_without_an_answer(couple) -> None:
    both = couple()
    number, stream = both.begin(*GET)
    stream.close()
    both.look()
    assert both.peer.answers[number].reset == CANCEL


CHUNKED = b"HTTP/1.1 413 No\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"
EARLY = {
    "length": (b"HTTP/1.1 413 No\r\nContent-Length: 5\r\n\r\n", b"hello"),
    "no body": (b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n",),
    "chunks": (CHUNKED + b"0\r\n\r\n",),
    "an end of its own": (CHUNKED, b"0\r\n\r\n"),
    "trailers": (CHUNKED + b"0\r\nX-A: b\r\n\r\n",),
    "to the end": (b"HTTP/1.1 413 No\r\n\r\nhello",),
}


@pytest.mark.parametrize("pieces", EARLY.values(), ids=EARLY)
def test_an_answer_before_the_request_was_whole(couple, pieces) -> None:
    """The client may stop: RFC 9113 section 8.1. The stream stayed open if its end was
    not in a frame with octets."""
    both = couple()
    number, stream = both.begin(*POST, ends=False)
    for piece in pieces:
        assert stream.send(piece) == len(piece)
    stream.half_close()
    stream.close()
    both.look()
    answer = both.peer.answers[number]
    assert (answer.status, answer.ended, answer.reset) == (413, True, NO_ERROR)
    assert both.peer.h2.open_outbound_streams == 0


@pytest.mark.parametrize("body", [b"", b"hello"])
def test_answers_before_the_requests_were_whole_on_a_full_connection(
        couple, body) -> None:
    """Those without a body were lost."""
    both = couple()
    both.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    bulk, hog = both.begin(*TUNNEL, ends=False)
    both.peer.h2.increment_flow_control_window(1 << 24, bulk)
    both.peer.h2.increment_flow_control_window(1 << 26)
    begun = [both.begin(*POST, ends=False) for _ in range(12)]
    hog.send(ESTABLISHED)
    while hog.can_write:
        assert hog.send(bytes(65536)) >= 0
    for number, stream in begun:
        reply = b"HTTP/1.1 413 No\r\nX: %s\r\nContent-Length: %d\r\n\r\n%s" % (
            b"%04d" % number * 1000, len(body), body)
        assert stream.send(reply) == len(reply)
        stream.half_close()
        stream.close()
    while not both.carrier.can_write:
        both.look()
        both.carrier.hear()
    both.look()
    for number, _ in begun:
        answer = both.peer.answers[number]
        assert (answer.status, answer.body) == (413, body)
        assert (answer.ended, answer.reset) == (True, NO_ERROR)
    assert both.peer.h2.open_outbound_streams == 1


def test_the_clients_reset(couple) -> None:
    both = couple()
    number, stream = both.begin(*POST, ends=False)
    both.peer.send(number, b"abc")
    both.hear()
    both.peer.h2.reset_stream(number)
    assert both.hear() == [stream]
    text = read_all(stream)
    assert text.endswith(b"\r\n\r\n3\r\nabc\r\n")   # earlier bytes come first
    assert stream.recv() == GONE
    assert stream.send(OKAY) == GONE
    stream.close()


def test_a_reset_before_anybody_has_looked(couple) -> None:
    both = couple()
    number = both.peer.request(GET)
    both.peer.h2.reset_stream(number)
    assert both.hear() == []
    assert both.carrier.count == 0


def test_a_client_that_has_gone_takes_its_streams_along(couple) -> None:
    both = couple()
    _, one = both.begin(*GET)
    _, two = both.begin(*TUNNEL, ends=False)
    one.recv()
    both.theirs.close()
    assert both.heard() == "end"
    assert both.carrier.lose("end") == [one, two]
    assert one.recv() == GONE
    assert two.recv().startswith(b"CONNECT")
    assert two.recv() == GONE
    both.carrier.end()
    both.ended = True
    assert two.recv() == GONE               # a session may end later than its carrier
    assert two.send(b"x") == GONE
    for stream in (one, two):
        stream.close()


# --- drain


def test_a_drained_connection_finishes_its_streams(couple) -> None:
    both = couple()
    number, stream = both.begin(*GET)
    both.carrier.drain()
    both.look()
    assert both.peer.goaways == [(NO_ERROR, (1 << 31) - 1)]
    late, other = both.begin(*GET)
    both.carrier.drain()
    both.look()
    assert both.peer.goaways[-1] == (NO_ERROR, late)
    for one in (stream, other):
        one.send(OKAY, b"hello")
        one.half_close()
        one.close()
    both.look()
    assert both.peer.answers[number].ended
    assert both.peer.answers[late].ended
    assert both.carrier.count == 0


def test_more_streams_than_allowed_end_the_connection(couple) -> None:
    both = couple(streams=3)
    both.hear()
    assert both.peer.settings[3] == 3
    both.peer.h2.remote_settings[3] = 100
    both.peer.h2.remote_settings.acknowledge()
    for _ in range(4):
        both.peer.request(GET)
    assert both.heard() == "fault"
    both.look()
    assert both.peer.goaway == (PROTOCOL_ERROR, 5)


def test_streams_that_were_reset_count_while_they_have_a_session(couple) -> None:
    """As long as their origins take the earlier bytes, for example: see
    CVE-2023-44487."""
    both = couple(streams=2)
    for _ in range(4):
        number, stream = both.begin(*GET)
        both.peer.h2.reset_stream(number)
        both.hear()
    assert both.carrier.count == 4
    number = both.peer.request(GET)
    both.hear()
    assert both.peer.answers[number].reset == REFUSED_STREAM
    stream.close()
    number, stream = both.begin(*GET)
    assert stream.recv() == HEAD


def test_a_clients_goaway_without_streams_ends_the_connection(couple) -> None:
    both = couple()
    _, stream = both.begin(*GET)
    both.peer.h2.close_connection()
    both.hear()
    stream.send(OKAY, b"hello")
    stream.half_close()
    stream.close()
    assert both.carrier.speak() == "end"
