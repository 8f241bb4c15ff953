"""Answers of HTTP/1.1 as frames, and the windows that bound them (R62)."""

import errno
import random
import socket

import pytest
from h2.settings import SettingCodes

from cutthrough.generation import error_pages, pac
from tests.http2.requests import ESTABLISHED, GET, OKAY, TUNNEL, read_all
from tests.support.http2 import INTERNAL_ERROR

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS = {
    "length": (OKAY + b"hello", "200", b"hello", None),
    "chunks": (CHUNKED + b"3\r\nabc\r\nA;x=y\r\ndefghijklm\r\n0\r\n\r\n", "200",
               b"abcdefghijklm", None),
    "trailers": (CHUNKED + b"3\r\nabc\r\n0\r\nX-T: u\r\nY:\r\n\r\n", "200", b"abc",
                 [("x-t", "u"), ("y", "")]),
    "many trailers": (
        CHUNKED + b"0\r\n" + b"".join(b"X-%d: u\r\n" % n for n in range(100)) + b"\r\n",
        "200", b"", [(f"x-{n}", "u") for n in range(100)]),
    "empty chunks": (CHUNKED + b"0\r\n\r\n", "200", b"", None),
    "no content": (b"HTTP/1.1 204 No Content\r\n\r\n", "204", b"", None),
    "empty": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "404", b"", None),
    "interim": (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OKAY + b"hello", "200",
                b"hello", None),
}


@pytest.mark.parametrize("reply, status, body, trailers", ANSWERS.values(), ids=ANSWERS)
def test_an_answer_at_every_split(couple, reply, status, body, trailers) -> None:
    both = couple()
    both.begin(*GET)[1].close()
    for at in range(len(reply) + 1):
        number, stream = both.begin(*GET)
        if at < len(reply):
            assert stream.send(reply[:at], reply[at:]) == len(reply)
        else:
            for octet in reply:
                assert stream.send(bytes([octet])) == 1
        both.look()
        answer = both.peer.answers[number]
        assert answer.heads[-1][":status"] == status
        assert (answer.body, answer.trailers, answer.ended) == (body, trailers, True)
        stream.half_close()
        stream.close()
        both.look()
        assert answer.reset is None


def test_the_answer_to_head_has_no_body(couple) -> None:
    both = couple()
    number, stream = both.begin((":method", "HEAD"), *GET[1:])
    stream.send(OKAY)
    both.look()
    assert both.peer.answers[number].heads[0]["content-length"] == "5"
    assert both.peer.answers[number].ended


def test_an_answer_until_the_close(couple) -> None:
    both = couple()
    number, stream = both.begin(*GET)
    stream.send(b"HTTP/1.1 200 OK\r\n\r\n", b"hello")
    both.look()
    assert not both.peer.answers[number].ended
    stream.half_close()
    both.look()
    assert both.peer.answers[number].ended
    assert both.peer.answers[number].body == b"hello"


@pytest.mark.parametrize("begun", [OKAY + b"hel", CHUNKED + b"3\r\nab", CHUNKED,
                                   b"HTTP/1.1 200"])
def test_an_answer_that_is_cut_does_not_look_whole(couple, begun) -> None:
    both = couple()
    number, stream = both.begin(*GET)
    stream.send(begun)
    stream.half_close()
    both.look()
    assert both.peer.answers[number].reset == INTERNAL_ERROR
    assert not both.peer.answers[number].ended


@pytest.mark.parametrize("reply", [
    b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", b"nonsense\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", OKAY + b"hello, world"])
def test_a_fault_in_the_answer_resets_the_stream(couple, reply) -> None:
    both = couple()
    number, stream = both.begin(*GET)
    assert stream.send(reply) == -errno.EPIPE
    both.look()
    assert both.peer.answers[number].reset in (INTERNAL_ERROR, None)
    assert both.peer.answers[number].is_over


# --- windows


def test_octets_beyond_the_window_stay_with_the_caller(couple) -> None:
    both = couple()
    both.peer.credit = False
    number, stream = both.begin(*TUNNEL, ends=False)
    stream.send(ESTABLISHED)
    data = bytes(range(256)) * 300
    assert stream.send(data) == 65535
    assert not stream.can_write
    assert stream.send(data[65535:]) == 0
    both.look()
    both.peer.h2.increment_flow_control_window(1000, number)
    both.peer.h2.increment_flow_control_window(500)
    assert both.hear() == [stream]
    assert stream.can_write
    assert stream.send(data[65535:]) == 500
    both.look()
    assert both.peer.answers[number].body == data[:66035]


def test_a_slow_stream_holds_no_other(couple) -> None:
    both = couple()
    both.peer.credit = False
    slow, one = both.begin(*TUNNEL, ends=False)
    both.peer.h2.increment_flow_control_window(1 << 20)
    fast, two = both.begin(*TUNNEL, ends=False)
    assert one.send(ESTABLISHED, bytes(100_000)) < 100_000
    assert two.send(ESTABLISHED, b"quick") == len(ESTABLISHED) + 5
    both.look()
    assert both.peer.answers[fast].body == b"quick"
    # the other way: no side reads the first stream's octets
    sent = both.peer.send(slow, bytes(200_000))
    assert sent == 65535
    both.hear()
    for _ in range(40):
        assert both.peer.send(fast, bytes(50_000)) == 50_000
        both.hear()
        assert read_all(two)
        both.look()
    assert both.peer.h2.local_flow_control_window(slow) == 0
    assert len(read_all(one)) > 65535
    both.carrier.speak()
    both.look()
    assert both.peer.h2.local_flow_control_window(slow) > 60_000


def test_a_short_reply_needs_no_window(couple) -> None:
    """A refusal of our own must reach a client even if its windows are used up."""
    both = couple()
    both.peer.credit = False
    _, hog = both.begin(*TUNNEL, ends=False)
    assert hog.send(ESTABLISHED, bytes(70_000)) < 70_000
    number, stream = both.begin(*GET)
    assert stream.send(OKAY + b"hello") == len(OKAY) + 5
    stream.half_close()
    stream.close()
    both.look()
    assert both.peer.answers[number].status == 200
    assert not both.peer.answers[number].ended
    both.peer.h2.increment_flow_control_window(100)
    both.hear()
    assert both.peer.answers[number].body == b"hello"
    assert both.peer.answers[number].ended


def test_a_carrier_that_takes_nothing_is_not_read(couple) -> None:
    both = couple()
    number, stream = both.begin(*TUNNEL, ends=False)
    both.peer.h2.increment_flow_control_window((1 << 30), number)
    both.peer.h2.increment_flow_control_window(1 << 30)
    both.hear()
    stream.send(ESTABLISHED)
    sent = 0
    while got := stream.send(bytes(65536)):
        sent += got
    both.peer.send(number, b"unread")
    assert both.carrier.hear() == ("all", [])
    both.look()
    assert stream in both.hear()            # the carrier has room: write, and read
    assert read_all(stream).endswith(b"unread")
    both.look()
    assert len(both.peer.answers[number].body) == sent
    assert stream.can_write


@pytest.mark.parametrize("room", [1 << 20, 4608])
def test_octets_of_large_pieces_keep_their_order(couple, room: int) -> None:
    """They are taken from where they are; what a full carrier leaves is kept, and the
    frames of another stream come between."""
    both = couple()
    both.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
    both.peer.h2.increment_flow_control_window(1 << 24)
    sent = {}
    for _ in range(2):
        number, stream = both.begin(*TUNNEL, ends=False)
        both.peer.h2.increment_flow_control_window(1 << 24, number)
        stream.send(ESTABLISHED)
        sent[number] = [stream, random.randbytes(400_000), 0]
    both.hear()
    sizes = [65536, 32768, 100, 65535, 20000]
    while any(at < len(data) for _, data, at in sent.values()):
        for turn, one in enumerate(sent.values()):
            stream, data, at = one
            if stream.can_write:
                taken = stream.send(data[at:at + sizes[(at + turn) % len(sizes)]])
                assert taken >= 0
                one[2] += taken
        both.hear()
    both.hear()
    for number, (_, data, _) in sent.items():
        assert both.peer.answers[number].body == data


def test_streams_have_turns(couple) -> None:
    """Streams that found no room go on in their order."""
    both = couple()
    both.peer.credit = False
    streams = [both.begin(*TUNNEL, ends=False)[1] for _ in range(5)]
    for stream in streams:
        stream.send(ESTABLISHED)
    assert streams[0].send(bytes(100_000)) == 65535
    for stream in streams[1:]:
        assert stream.send(bytes(1000)) == 0
    both.look()
    both.peer.h2.increment_flow_control_window(10_000)
    assert both.hear() == streams


@pytest.mark.parametrize("n", [2000, error_pages.MOST_BYTES + 1024, pac.MOST_BYTES])
def test_a_reply_of_our_own_is_taken_whole_without_a_window(couple, n) -> None:
    """Its session waits for nothing: a reply that is not taken at once is cut."""
    reply = b"HTTP/1.1 403 x\r\nContent-Length: %d\r\n\r\n%b" % (n, b"e" * n)
    both = couple()
    both.peer.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    number, stream = both.begin(*GET)
    assert stream.send(reply) == len(reply)
    stream.close()
    both.look()
    answer = both.peer.answers[number]
    assert (answer.status, answer.body, answer.is_over) == (403, b"", False)
    both.peer.h2.increment_flow_control_window(65535, number)
    both.hear()
    assert (answer.body, answer.ended) == (b"e" * n, True)
