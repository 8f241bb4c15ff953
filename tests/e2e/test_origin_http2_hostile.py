"""Origins of HTTP/2 that break its rules, or are out of step (R62): a request ends with
a reason, and if HTTP/2 lets them, the others of its connection go on."""

import threading
from collections.abc import Callable

import pytest

from tests.support.hostile_http2 import OKAY, PUSH, SIX, encode, head
from tests.support.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    RST_STREAM,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from tests.support.http2_origin import Origin as Speaker
from tests.support.scripted_http2 import reach as reach
from tests.support.scripted_http2 import say, speak
from tests.support.scripted_http2 import start as start

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop


def bomb(stream: int) -> bytes:
    """A field of 4000 octets goes into the table, and 15 000 octets each stand for it:
    60 MB."""
    block = encode(OKAY, ("x", "y" * 4000)) + b"\xbe" * 15_000
    return b"".join(
        frame(HEADERS if at == 0 else CONTINUATION,
              END_HEADERS if at + 8000 >= len(block) else 0, stream,
              block[at:at + 8000])
        for at in range(0, len(block), 8000))


#: The origin's bytes for one request; others of its connection go on.
OF_ONE_STREAM = {
    "no status": lambda n: head(n, ("x", "y")),
    "two statuses": lambda n: head(n, OKAY, OKAY, ends=True),
    "101": lambda n: head(n, (":status", "101"), ends=True),
    "transfer-encoding": lambda n: head(n, OKAY, ("transfer-encoding", "chunked")),
    "a line end in a value": lambda n: head(n, OKAY, ("x", "y\r\nz: 1")),
    "NUL in a value": lambda n: head(n, OKAY, ("x", "y\0z")),
    "two lengths": lambda n: head(n, OKAY, ("content-length", "1"), SIX),
    "an end without a head": lambda n: frame(RST_STREAM, 0, n, bytes(4)),
    "an interim head that ends": lambda n: head(n, (":status", "103"), ends=True),
    "200 interim heads": lambda n: head(n, (":status", "103"), ("x", "y" * 1000)) * 200,
    "an HPACK bomb": bomb,
    "no window left": lambda n: frame(WINDOW_UPDATE, 0, n, b"\x7f\xff\xff\xff"),
}
#: Behind the head of a response
OF_ONE_BODY = {
    "too much": lambda n: frame(DATA, 0, n, b"more than six"),
    "too little": lambda n: frame(DATA, END_STREAM, n, b"less"),
    "trailers too early": lambda n: frame(DATA, 0, n, b"abc") + head(
        n, ("x", "y"), ends=True),
    "trailers that do not end": lambda n: frame(DATA, 0, n, b"abc") + head(
        n, ("x", "y")),
    "more than our window": lambda n: frame(DATA, 0, n, bytes(16000)) * 80,
    "a reset": lambda n: frame(RST_STREAM, 0, n, b"\0\0\0\2"),
}
#: The end of a connection
OF_ALL = {
    "a push": lambda n: frame(PUSH, END_HEADERS, n, b"\0\0\0\2" + encode(
        (":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/"))),
    "a stream of its own": lambda n: head(2, OKAY),
    "fields that cannot be read": lambda n: frame(HEADERS, END_HEADERS, n, b"\xff" * 9),
    "CONTINUATION": lambda n: frame(HEADERS, 0, n, encode(OKAY)) + frame(
        CONTINUATION, 0, n, b"") * 50,
    "a frame too long": lambda n: frame(DATA, 0, n, bytes(20_000)),
    "a window beyond its bound": lambda n: frame(
        WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff"),
    "an increment of 0": lambda n: frame(WINDOW_UPDATE, 0, n, bytes(4)),
    "SETTINGS": lambda n: frame(SETTINGS) * 2000,
    "empty DATA": lambda n: head(n, OKAY) + frame(DATA, 0, n) * 20_000,
    "PING": lambda n: frame(PING, 0, 0, bytes(8)) * 2000,
    "SETTINGS that are none": lambda n: frame(SETTINGS, 0, 0, b"\0\4\xff\xff\xff\xff"),
    "DATA without a head": lambda n: frame(DATA, END_STREAM, n, b"abc"),
    "HTTP/1.1": lambda n: b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
}


@pytest.fixture
def serve(start, make_origin, reach):
    """A proxy, an origin that sends this for /bad, and a client behind one answer."""
    def make(bad: Callable[[int], bytes], config: str = 'origin_http2 = "auto"\n'):
        def answer(speaker: Speaker, stream: int) -> None:
            if dict(speaker.questions[stream].fields)[":path"] != "/bad":
                say(speaker, stream)
                return
            speaker.flush()
            speaker.sock.sendall(bad(stream))

        proxy, origin = start(config), make_origin(speak(answer))
        peer = reach(proxy, origin.port)
        assert peer.wait(peer.get("https://a.example/a")).body == b"/a"
        return proxy, origin, peer
    return make


def reason_of_bad(proxy) -> str:
    (one,) = proxy.wait_log(1, method="POST")
    return one["reason"]


@pytest.mark.parametrize("bad", OF_ONE_STREAM.values(), ids=OF_ONE_STREAM)
def test_a_response_that_is_none_ends_its_request(serve, bad) -> None:
    proxy, origin, peer = serve(bad)
    assert peer.wait(peer.get("https://a.example/bad", method="POST")).status == 502
    assert peer.wait(peer.get("https://a.example/b")).body == b"/b"
    assert reason_of_bad(proxy) == (
        "origin_reset" if bad is OF_ONE_STREAM["an end without a head"] else
        "bad_response")
    assert len(origin.connections) == 1


def test_a_response_that_is_none_is_not_asked_for_again(serve) -> None:
    """A GET was sent once more, by a connection of its own."""
    proxy, origin, peer = serve(OF_ONE_STREAM["two statuses"])
    assert peer.wait(peer.get("https://a.example/bad")).status == 502
    assert proxy.wait_log(1, status=502)[0]["reason"] == "bad_response"
    assert len(origin.connections) == 1


def test_a_value_with_a_control_goes_on_without_it(serve) -> None:
    """As an origin's of HTTP/1.1 does: tests/e2e/test_field.py."""
    _, origin, peer = serve(
        lambda n: head(n, OKAY, ("x", "a\x01b\x7f"), SIX)
        + frame(DATA, END_STREAM, n, b"abcdef"))
    got = peer.wait(peer.get("https://a.example/bad", method="POST"))
    assert (got.status, got.body, got.heads[0]["x"]) == (200, b"abcdef", "ab")
    assert len(origin.connections) == 1


@pytest.mark.parametrize("bad", OF_ONE_BODY.values(), ids=OF_ONE_BODY)
def test_a_body_that_is_not_whole_is_cut(serve, bad) -> None:
    proxy, origin, peer = serve(lambda n: head(n, OKAY, SIX) + bad(n))
    got = peer.wait(peer.get("https://a.example/bad", method="POST"))
    assert got.status == 502 or (got.reset is not None and not got.ended)
    assert peer.wait(peer.get("https://a.example/b")).body == b"/b"
    assert reason_of_bad(proxy) == (
        "origin_reset" if bad is OF_ONE_BODY["a reset"] else "bad_response")
    assert len(origin.connections) == 1


@pytest.mark.parametrize("bad", OF_ALL.values(), ids=OF_ALL)
def test_a_connection_that_breaks_the_rules_ends(serve, bad) -> None:
    """The next request has another connection."""
    proxy, origin, peer = serve(bad)
    got = peer.wait(peer.get("https://a.example/bad", method="POST"))
    assert got.status == 502 or got.reset is not None
    assert peer.wait(peer.get("https://a.example/b")).body == b"/b"
    assert reason_of_bad(proxy) == "bad_response"
    assert len(origin.connections) == 2


@pytest.mark.parametrize("behind", [
    lambda n: frame(DATA, END_STREAM, n) + frame(DATA, 0, n, b"more") + frame(
        RST_STREAM, 0, n, bytes(4)),
    lambda n: head(n, OKAY, ends=True),
], ids=["more", "a status"])
def test_what_comes_behind_the_body_changes_nothing(serve, behind) -> None:
    _, _, peer = serve(
        lambda n: head(n, OKAY, SIX) + frame(DATA, 0, n, b"abcdef") + behind(n))
    got = peer.wait(peer.get("https://a.example/bad", method="POST"))
    assert got.body == b"abcdef"
    assert peer.wait(peer.get("https://a.example/b")).body == b"/b"


@pytest.mark.parametrize("settings", [
    b"\0\1\0\0\0\0", b"\0\4\0\0\0\0" + b"\0\4\0\0\xff\xff", b"\0\5\0\0\xff\xff",
    b"\0\3\0\0\0\1", b"\0\x77\0\0\0\1"],
    ids=["no table", "no window and back", "long frames", "one stream", "unknown"])
def test_settings_in_the_middle_are_followed(serve, settings) -> None:
    _, _, peer = serve(lambda n: frame(SETTINGS, 0, 0, settings) + head(
        n, OKAY, ends=True))
    for _ in range(3):
        assert peer.wait(peer.get("https://a.example/bad", method="POST")).status == 200
        assert peer.wait(peer.get("https://a.example/b")).body == b"/b"


def test_an_origin_that_is_silent_meets_the_deadline(serve) -> None:
    proxy, _, peer = serve(
        lambda n: b"", 'origin_http2 = "auto"\nresponse_timeout = "1s"\n')
    assert peer.wait(peer.get("https://a.example/bad", method="POST")).status == 504
    assert peer.wait(peer.get("https://a.example/b")).body == b"/b"
    assert reason_of_bad(proxy) == "response_timeout"


def test_a_goaway_in_the_middle_lets_its_requests_end(serve) -> None:
    _, origin, peer = serve(lambda n: frame(
        GOAWAY, 0, 0, n.to_bytes(4, "big") + bytes(4)) + head(n, OKAY, ends=True))
    assert peer.wait(peer.get("https://a.example/bad", method="POST")).status == 200
    assert peer.wait(peer.get("https://a.example/b")).body == b"/b"
    assert len(origin.connections) == 2


def test_a_client_that_reads_nothing_holds_its_own_response_alone(
        start, make_origin, reach) -> None:
    """Of 21 of one connection."""
    sent = threading.Event()

    def answer(speaker: Speaker, stream: int) -> None:
        path = dict(speaker.questions[stream].fields)[":path"]
        if path != "/slow":
            say(speaker, stream)
            return
        speaker.h2.send_headers(stream, [(":status", "200")])
        speaker.flush()
        while n := min(16384, speaker.h2.local_flow_control_window(stream)):
            speaker.h2.send_data(stream, bytes(n))
            speaker.flush()
        sent.set()

    proxy, origin = start(), make_origin(speak(answer))
    peer = reach(proxy, origin.port)
    assert peer.wait(peer.get("https://a.example/a")).body == b"/a"
    slow = reach(proxy, origin.port)
    slow.get("https://a.example/slow")
    assert sent.wait(20)
    streams = [peer.get(f"https://a.example/{n}") for n in range(20)]
    peer.wait(*streams)
    assert [bytes(peer.answers[one].body) for one in streams] == [
        b"/%d" % n for n in range(20)]
