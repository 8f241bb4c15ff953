"""Messages: of the frames of a WebSocket, and of server-sent events."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.extensions.permessage_deflate import PerMessageDeflate
from websockets.frames import Frame, Opcode

from cutthrough.exchange import messages
from cutthrough.exchange.messages import Piece, read_events, read_websocket
from tests.capture.twin_messages import same_messages
from tests.support.redaction import redactor

PLAIN = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n"
DEFLATE = PLAIN[:-2] + ("Sec-WebSocket-Extensions: permessage-deflate; "
                        "client_max_window_bits=15\r\n\r\n")


def frame(code, data=b"", *, last=True, mask=True, extensions=()):
    return Frame(code, data, fin=last).serialize(mask=mask, extensions=extensions)


def read(data, head=PLAIN, *, size=1 << 20, whole=True, is_up=True, **settings):
    """The messages of bytes that came in pieces of `size`, and their state."""
    pieces = [Piece(is_up, 1000 + at, data[at:at + size])
              for at in range(0, len(data), size)]
    found, state = read_websocket(pieces, head, whole=whole,
                                  redactor=redactor(**settings))
    return json.loads(found), state


def test_frames_are_messages_with_the_time_of_their_last_byte():
    data = frame(Opcode.TEXT, "grün".encode()) + frame(Opcode.BINARY, b"\xff\x00") + (
        frame(Opcode.CLOSE, b"\x03\xe8bye"))
    found, state = read(data, size=1)
    assert state is None
    assert found == [
        {"at_us": 1010, "side": "request", "kind": "text", "bytes": 5, "text": "grün"},
        {"at_us": 1018, "side": "request", "kind": "binary", "bytes": 2,
         "base64": "/wA="},
        {"at_us": 1029, "side": "request", "kind": "close", "bytes": 5, "code": 1000,
         "text": "bye"}]


def test_both_directions_are_in_the_order_of_their_ends():
    up, down = frame(Opcode.TEXT, b"question"), frame(Opcode.TEXT, b"news", mask=False)
    pieces = [Piece(True, 1, up[:3]), Piece(False, 2, down), Piece(True, 3, up[3:]),
              Piece(False, 4, down)]
    found, state = read_websocket(pieces, PLAIN, whole=True, redactor=redactor())
    assert [(one["side"], one["text"]) for one in json.loads(found)] == [
        ("response", "news"), ("request", "question"), ("response", "news")]
    assert state is None


def test_fragments_are_one_message_and_a_ping_may_come_between():
    data = frame(Opcode.TEXT, b"a", last=False) + frame(Opcode.PING, b"?") + (
        frame(Opcode.CONT, b"b", last=False) + frame(Opcode.CONT, b"c"))
    found, _ = read(data)
    assert [(one["kind"], one["text"]) for one in found] == [
        ("ping", "?"), ("text", "abc")]


@pytest.mark.parametrize("length", [0, 1, 125, 126, 65535, 65536])
@pytest.mark.parametrize("mask", [True, False])
def test_every_length_is_read(length, mask):
    data = frame(Opcode.TEXT, b"x" * length, mask=mask)
    found, state = read(data, size=997)
    assert (found[0]["text"], state) == ("x" * length, None)


def test_deflated_messages_share_their_window():
    sender = PerMessageDeflate(False, False, 15, 15)
    texts = ["hello, hello, hello", "hello, hello, hello", ""]
    data = b"".join(frame(Opcode.TEXT, one.encode(), extensions=[sender])
                    for one in texts)
    for size in (1, 7, 1000):
        found, state = read(data, DEFLATE, size=size)
        assert [one["text"] for one in found] == texts and state is None


@given(st.lists(st.tuples(st.sampled_from([Opcode.TEXT, Opcode.BINARY]),
                          st.binary(max_size=300)), max_size=6),
       st.booleans(), st.integers(1, 400), st.integers(0, 10))
def test_any_messages_come_out_as_they_went_in(sent, deflated, size, cut):
    extensions = [PerMessageDeflate(False, False, 15, 15)] if deflated else []
    data = b"".join(frame(code, content, extensions=extensions)
                    for code, content in sent)
    whole, _ = read(data, DEFLATE if deflated else PLAIN, size=size)
    assert [one["bytes"] for one in whole] == [len(content) for _, content in sent]
    part, _ = read(data[:len(data) - cut], DEFLATE if deflated else PLAIN, size=size)
    same = [one for one in part if "state" not in one]
    assert [one["bytes"] for one in same] == [one["bytes"] for one in whole[:len(same)]]


@given(st.binary(max_size=400), st.booleans())
def test_any_bytes_are_read_without_a_fault(data, deflated):
    read(data, DEFLATE if deflated else PLAIN, size=50)


@pytest.mark.parametrize("data", [
    b"\x81",
    b"\x83\x00", b"\x8b\x00",                # opcodes that are reserved
    b"\x80\x00",                             # goes on, and nothing had begun
    b"\x01\x00\x01\x00",                     # begins in another message
    b"\x09\x00",                             # a ping in fragments
    b"\xc1\x00",                             # deflated, but that was not agreed
    b"\xa1\x00",
    b"\x03\x00",                             # reserved, and goes on
    b"\x89\x7e\x00\x7e",                     # a ping of 126 bytes (section 5.5)
    b"\x82\x7f\x80" + b"\0" * 7,            # 2^63 bytes (section 5.2)
])
def test_what_is_no_frame_ends_the_reading(data):
    found, state = read(frame(Opcode.TEXT, b"good") + data)
    assert [one["text"] for one in found] == ["good"]
    assert state == ("malformed" if len(data) > 1 else None)


@given(st.binary(max_size=300), st.integers(1, 40))
def test_frames_are_read_as_the_twin_reads_them(data, size):
    same_messages(data, size)


def test_a_message_whose_last_fragment_has_not_come_is_truncated():
    found, state = read(frame(Opcode.TEXT, b"one ", last=False)
                        + frame(Opcode.CONT, b"two", last=False))
    assert [(one["text"], one["state"]) for one in found] == [("one two", "truncated")]
    assert state is None


def test_a_length_that_never_comes_takes_no_memory():
    data = b"\x82\x7f\x7f" + b"\xff" * 7 + b"abc"
    good, cut = read(frame(Opcode.TEXT, b"good") + data)[0]
    assert (good["text"], cut["bytes"], cut["state"]) == ("good", 3, "truncated")


def test_each_way_has_its_own_bound(monkeypatch):
    monkeypatch.setattr(messages, "MOST_MESSAGES", 3)
    pieces = [Piece(is_up, 1, frame(Opcode.PING) * 9) for is_up in (True, False)]
    found, state = read_websocket(pieces, PLAIN, whole=True, redactor=redactor())
    assert [one["side"] for one in json.loads(found)] == ["request"] * 3 + (
        ["response"] * 3)
    assert state == "truncated"


def test_a_message_in_part_says_so():
    data = frame(Opcode.TEXT, b"a" * 100, mask=False)
    (one,), state = read(data[:50], whole=False)
    assert (one["text"], one["state"], state) == ("a" * 48, "truncated", "truncated")


def test_messages_and_what_they_inflate_to_are_bounded(monkeypatch):
    """R58."""
    monkeypatch.setattr(messages, "MOST_MESSAGES", 10)
    found, state = read(frame(Opcode.PING) * 50)
    assert (len(found), state) == (10, "truncated")
    monkeypatch.setattr(messages, "MOST_CAPTURED", 1000)
    sender = PerMessageDeflate(False, False, 15, 15)
    bomb = frame(Opcode.TEXT, b"x" * 100_000, extensions=[sender])
    (one, two), _ = read(bomb + bomb, DEFLATE)
    assert (one["bytes"], one["state"], two["state"]) == (1000, "truncated", "encoded")


def test_a_secret_in_a_message_is_redacted():
    """R59."""
    found, _ = read(frame(Opcode.TEXT, b'{"a": {"password": "s3cret"}}'),
                    json=("$..password",))
    assert json.loads(found[0]["text"]) == {"a": {"password": "[redacted]"}}
    data = frame(Opcode.TEXT, b'{"password": "s3cret"}', mask=False)
    (one,), _ = read(data[:-3], whole=False, json=("$..password",))
    assert one["state"] == "redacted" and "text" not in one
    (one,), _ = read(b"\xc1\x07\x07s3cret", DEFLATE, json=("$..password",))
    assert one["state"] == "redacted" and "base64" not in one
    (one,), _ = read(frame(Opcode.TEXT, b"\xff?a=s3cret"), query=("a",))
    assert base64.b64decode(one["base64"]) == b"\xff?a=[redacted]"
    (one,), _ = read(frame(Opcode.BINARY, b"\xff\0?a=s3cret"), query=("a",))
    assert one["state"] == "redacted" and "base64" not in one


def test_events_are_read_as_a_browser_reads_them():
    text = ("\ufeffdata: one\r\n: comment\r\n\r\nevent: tick\ndata:two\ndata:  three\n"
            "id: 7\n\nretry: 5\n\ndata\n\rdata: not dispatched")
    assert list(read_events(text)) == [
        {"side": "response", "kind": "event", "text": "one"},
        {"side": "response", "kind": "event", "text": "two\n three", "event": "tick",
         "id": "7"},
        {"side": "response", "kind": "event", "text": "", "id": "7"}]
