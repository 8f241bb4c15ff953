"""Hostile frames: malformed requests, floods, bombs; each has a bound (R62)."""

import hpack
import pytest

from tests.http2.requests import GET, POST, TUNNEL, read_all
from tests.support.hostile_http2 import MALFORMED
from tests.support.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    Peer,
    frame,
)

CREDIT = bytes([0, 0, 0, 1])
MOST = bytes([127, 255, 255, 255])


def encode(*fields: tuple[str, str]) -> bytes:
    return hpack.Encoder().encode(fields)


def head(number: int, *fields: tuple[str, str], flags: int = END_STREAM) -> bytes:
    return frame(HEADERS, flags | END_HEADERS, number, encode(*fields))


# The first answers itself, as the reader of HTTP/1.1 does
ANSWERED = {
    "two lengths": ("", (*GET, ("content-length", "0"), ("content-length", "0"))),
    "extended CONNECT": (
        "extended", ((":method", "CONNECT"), (":protocol", "websocket"), *GET[1:])),
    "another host": ("invalid", (*GET, ("host", "c.d"))),
    "line end in a value": ("invalid", (*GET, ("x", "y\r\nz: 1"))),
    "userinfo": ("invalid", (*GET[:2], (":authority", "u@a.b"), GET[3])),
    "space before a value": ("", (*GET, ("x", " y"))),
}


@pytest.mark.parametrize(("refusal", "fields"), ANSWERED.values(), ids=ANSWERED)
def test_a_request_that_could_be_read_is_answered(couple, refusal, fields) -> None:
    both = couple()
    both.hear()
    both.theirs.send(head(1, *fields))
    _, (stream,) = both.carrier.hear()
    assert stream.refusal == refusal
    reply = b"HTTP/1.1 400 x\r\nContent-Length: 0\r\n\r\n"
    assert stream.send(reply) == len(reply)
    stream.close()


@pytest.mark.parametrize("sent", [b"four", b"sixsix"])
def test_a_body_of_another_length_resets_its_stream(couple, sent) -> None:
    both = couple()
    both.hear()
    both.theirs.send(head(1, *POST, ("content-length", "5"), flags=0))
    _, (stream,) = both.carrier.hear()
    both.theirs.send(frame(DATA, END_STREAM, 1, sent))
    both.carrier.hear()
    data = both.theirs.recv(65536)
    assert frame(RST_STREAM, 0, 1, bytes([0, 0, 0, PROTOCOL_ERROR])) in data
    stream.close()


@pytest.mark.parametrize("fields", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_request_is_a_fault_of_its_stream(couple, fields) -> None:
    both = couple()
    both.hear()
    both.theirs.send(head(1, *fields) + head(3, *GET))
    both.peer.h2.get_next_available_stream_id()
    heard, due = both.carrier.hear()
    assert heard == "all"
    assert [one.refusal for one in dict.fromkeys(due)] == ["malformed", ""]
    assert due[1].recv().startswith(b"GET ")
    data = both.theirs.recv(65536)
    assert frame(RST_STREAM, 0, 1, bytes([0, 0, 0, PROTOCOL_ERROR])) in data
    due[0].close()


def test_malformed_trailers_reset_their_stream(couple) -> None:
    both = couple()
    number, stream = both.begin(*POST, ends=False)
    both.theirs.send(head(number, (":path", "/")))
    both.theirs.send(head(3, *GET))
    assert stream in both.carrier.hear()[1]
    data = both.theirs.recv(65536)
    assert frame(RST_STREAM, 0, number, bytes([0, 0, 0, PROTOCOL_ERROR])) in data


def test_a_head_that_is_too_large(couple) -> None:
    both = couple(head_bytes=1000)
    both.hear()
    both.theirs.send(head(1, *GET, ("x", "y" * 1000)))
    _, (stream,) = both.carrier.hear()
    assert stream.refusal == "too large"
    reply = b"HTTP/1.1 431 x\r\nContent-Length: 0\r\n\r\n"
    assert stream.send(reply) == len(reply)
    stream.half_close()
    stream.close()


def test_a_bomb_of_indexed_fields_is_only_counted(couple) -> None:
    """One octet names 4 KiB: 60 MB of fields in a frame of 16 KiB."""
    both = couple()
    both.hear()
    encoder = hpack.Encoder()
    first = encoder.encode((*GET, ("x", "y" * 3000)))
    both.theirs.send(frame(HEADERS, END_STREAM | END_HEADERS, 1, first))
    _, (stream,) = both.carrier.hear()
    assert stream.refusal == ""
    bomb = encoder.encode(GET) + b"\xbe" * 15_000
    both.theirs.send(frame(HEADERS, END_STREAM | END_HEADERS, 3, bomb))
    _, due = both.carrier.hear()
    assert due[-1].refusal == "too large"


def rows(*pieces: bytes, n: int = 3000) -> bytes:
    return b"".join(pieces) * n


def requests_and_resets(n: int) -> bytes:
    return b"".join(head(one, *GET) + frame(RST_STREAM, 0, one, bytes([0, 0, 0, 8]))
                    for one in range(1, 2 * n, 2))


FLOODS = {
    "rapid reset": ("resets", requests_and_resets(1000)),
    "malformed requests": ("resets", b"".join(
        head(one, *GET, ("connection", "x")) for one in range(1, 3000, 2))),
    "windows that overflow": ("resets", b"".join(     # CVE-2025-8671, as the next one
        head(one, *POST, flags=0) + frame(WINDOW_UPDATE, 0, one, MOST)
        for one in range(1, 3000, 2))),
    "bodies of another length": ("resets", b"".join(
        head(one, *POST, ("content-length", "1"), flags=0) + frame(DATA, 0, one, b"xy")
        for one in range(1, 3000, 2))),
    "ping": ("flood", rows(frame(PING, 0, 0, bytes(8)))),
    "settings": ("flood", rows(frame(SETTINGS))),
    "priority": ("flood", rows(frame(PRIORITY, 0, 1, bytes(5)))),
    "window update": ("flood", rows(frame(WINDOW_UPDATE, 0, 0, CREDIT))),
    "unknown frames": ("flood", rows(frame(0xb7, 0, 0, b"x"))),
    "empty data": ("flood", head(1, *POST, flags=0) + rows(frame(DATA, 0, 1))),
    "empty padded data": (
        "flood", head(1, *POST, flags=0) + rows(frame(DATA, PADDED, 1, b"\0"))),
    "data of padding alone": (
        "flood", head(1, *POST, flags=0) + rows(frame(DATA, PADDED, 1, b"\3\0\0\0"))),
    "continuation": ("headers", frame(HEADERS, END_STREAM, 1, encode(*GET))
                     + rows(frame(CONTINUATION, 0, 1))),
    "a header block without end": (
        "headers", frame(HEADERS, END_STREAM, 1, encode(*GET))
        + rows(frame(CONTINUATION, 0, 1, encode(("x", "y" * 16_000))), n=5)),
}


@pytest.mark.parametrize("word, data", FLOODS.values(), ids=FLOODS)
def test_a_flood_ends_the_connection(couple, word, data) -> None:
    both = couple()
    both.hear()
    both.theirs.settimeout(10)
    heard, at = "all", 0
    while heard in ("all", "some") and at < len(data):
        at += both.theirs.send(data[at:at + 2048])
        heard, due = both.carrier.hear()
        for stream in due:
            if stream.refusal == "malformed":
                stream.close()
    assert heard == word
    for stream in both.carrier.lose(word):
        stream.close()
    both.theirs.settimeout(0)
    found = b""
    try:
        while more := both.theirs.recv(65536):
            found += more
    except BlockingIOError:
        pass
    goaway = found[found.rindex(b"\x07\0\0\0\0\0"):]
    assert goaway[10:14] == bytes([0, 0, 0, ENHANCE_YOUR_CALM])


def test_patience_comes_back(couple) -> None:
    both = couple()
    both.hear()
    for _ in range(5):
        both.theirs.send(rows(frame(0xb7), n=900))
        assert both.heard() == "all"
        both.look()
        both.carrier.pass_time(9)
    both.theirs.send(rows(frame(0xb7), n=1100))
    assert both.heard() == "flood"


def test_a_reader_may_update_its_window_for_each_frame(couple) -> None:
    both = couple()
    number, stream = both.begin(*TUNNEL, ends=False)
    stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(3000):
        assert stream.send(b"x") == 1
        both.theirs.send(frame(WINDOW_UPDATE, 0, 0, CREDIT)
                         + frame(WINDOW_UPDATE, 0, number, CREDIT))
        assert both.heard() == "all"
        both.look()


PAGE = 4096


def credit(peer: Peer, stream: int, n: int) -> int:
    """As Go's transport: for the stream and for the connection, of each page. The
    octets that fill none."""
    for _ in range(n // PAGE):
        peer.h2.increment_flow_control_window(PAGE, stream)
        peer.h2.increment_flow_control_window(PAGE)
    return n % PAGE


def test_a_reader_may_update_its_windows_for_each_page(couple) -> None:
    """A download by Go was cut after some MiB."""
    both = couple()
    both.peer.credit = False
    number, stream = both.begin(*TUNNEL, ends=False)
    stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    sent = owed = 0
    while sent < 8 << 20:
        taken = stream.send(bytes(16384))
        assert taken > 0
        sent += taken
        both.look()
        owed = credit(both.peer, number, owed + taken)
        both.hear()


def test_a_slow_reader_may_update_its_windows_for_all_it_was_sent(couple) -> None:
    """At once, by more frames than a connection has units."""
    both = couple()
    both.peer.credit = False
    number, stream = both.begin(*TUNNEL, ends=False)
    both.peer.h2.increment_flow_control_window(8 << 20, number)
    both.peer.h2.increment_flow_control_window(8 << 20)
    both.hear()
    stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    sent = 0
    while sent < 4 << 20:
        sent += stream.send(bytes(65536))
        both.look()
        both.hear()
    credit(both.peer, number, sent)
    data = both.peer.h2.data_to_send()
    while data:
        data = data[both.theirs.send(data[:8192]):]
        assert both.heard() == "all"


def test_what_was_sent_pays_for_windows_only(couple) -> None:
    both = couple()
    _, stream = both.begin(*TUNNEL, ends=False)
    stream.send(b"HTTP/1.1 200 OK\r\n\r\n")
    for _ in range(40):
        stream.send(bytes(65536))
        both.look()
        both.hear()
    both.theirs.send(rows(frame(0xb7), n=1100))
    assert both.heard() == "flood"


def test_padding_beside_data_costs_nothing(couple) -> None:
    both = couple()
    _, stream = both.begin(*POST, ends=False)
    both.theirs.send(rows(frame(DATA, PADDED, 1, b"\3a\0\0\0"), n=1100))
    assert both.heard() == "all"
    assert read_all(stream).count(b"a") >= 1100


@pytest.mark.parametrize("data", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n" + bytes(20),
    PREFACE + frame(DATA, 0, 1, b"x"),
    PREFACE + frame(SETTINGS) + frame(DATA, 0, 0, b"x"),
    PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 2, encode(*GET)),
    PREFACE + frame(SETTINGS) + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff"),
    PREFACE + frame(SETTINGS) + frame(WINDOW_UPDATE, 0, 0, bytes(4)),
    PREFACE + frame(SETTINGS) + frame(CONTINUATION, 0, 1, b"x"),
    PREFACE + frame(SETTINGS) + frame(5, END_HEADERS, 1, bytes(4)),
])
def test_a_broken_connection_is_a_fault(data) -> None:
    from tests.doors.http2 import Carrier
    from tests.support.http2 import pair

    ours, theirs = pair()
    with ours, theirs:
        carrier = Carrier(ours.fileno())
        theirs.send(data)
        heard, due = carrier.hear()
        assert (heard, due) == ("fault", [])
        carrier.lose("fault")
        carrier.end()
        assert theirs.recv(65536)


def test_an_unfinished_head_is_dated(couple) -> None:
    both = couple()
    assert both.carrier.awaits_since        # the preface
    both.carrier.pass_time(1)
    both.hear()
    assert both.carrier.awaits_since == 0
    both.theirs.send(frame(HEADERS, END_STREAM, 1, encode(*GET)))
    both.carrier.hear()
    assert both.carrier.awaits_since == 1_000_001
    both.theirs.send(frame(CONTINUATION, END_HEADERS, 1))
    assert both.carrier.hear()[1]
    assert both.carrier.awaits_since == 0


def test_the_first_frame_has_come_with_its_last_octet() -> None:
    """With its header it was taken for whole: what SETTINGS says was not known yet."""
    from tests.doors.http2 import Carrier
    from tests.support.http2 import pair

    ours, theirs = pair()
    with ours, theirs:
        carrier = Carrier(ours.fileno())
        first = frame(SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x07")
        for at, octet in enumerate(PREFACE + first, 1):
            assert carrier.awaits_since
            theirs.send(bytes([octet]))
            carrier.hear()
            assert bool(carrier.awaits_since) == (at < len(PREFACE) + len(first))
        carrier.end()
