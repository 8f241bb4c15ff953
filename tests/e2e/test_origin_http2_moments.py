"""Origins of HTTP/2 that leave, refuse or talk nonsense at any moment of a response:
each request ends, and the next one is answered (R62)."""

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
    frame,
)
from tests.support.http2_origin import Origin as Speaker
from tests.support.inside import over_tls
from tests.support.origin import Connection
from tests.support.scripted_http2 import ON, say, speak
from tests.support.scripted_http2 import reach as reach
from tests.support.scripted_http2 import start as start

pytest.importorskip("cutthrough.http2.transport")
pytestmark = pytest.mark.any_loop

Bytes = Callable[[int], bytes]
ENDED = {"ok", "origin_reset", "bad_response", "bad_response_framing",
         "response_truncated"}


def whole(n: int) -> list[bytes]:
    return [head(n, OKAY, SIX), frame(DATA, 0, n, b"abc"),
            frame(DATA, END_STREAM, n, b"def")]


def goaway(last: int, code: int = 0) -> bytes:
    return frame(GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big"))


def at(moment: int, what: Bytes) -> Bytes:
    """A response with this before its part `moment`."""
    return lambda n: b"".join([
        *whole(n)[:moment], what(n), *whole(n)[moment:]])


LASTS: dict[str, Bytes] = {
    "none": lambda n: goaway(0), "this": goaway, "all": lambda n: goaway(2**31 - 1),
    "twice": lambda n: goaway(2**31 - 1) + goaway(n),
    "an error": lambda n: goaway(n, 2)}
LEAVING = {f"{name} at {moment}": at(moment, what)
           for name, what in LASTS.items() for moment in range(4)}
RESETS = {f"code {code} at {moment}": at(
    moment, lambda n, code=code: frame(RST_STREAM, 0, n, code.to_bytes(4, "big")))
    for code in (0, 1, 5, 7, 8, 11, 2**32 - 1) for moment in range(3)}
#: A field that no response has.
FIELDS = {" ".join(pair): (lambda n, pair=pair: head(n, OKAY, pair, SIX)) for pair in (
    ("connection", "close"), ("keep-alive", "timeout=5"), ("upgrade", "h2c"),
    ("proxy-connection", "close"), ("Upper", "case"), (":path", "/"), (":x", "y"),
    ("", "empty"), ("a b", "c"), ("x", "a\0b"), ("content-length", "-1"),
    ("content-length", "99999999999999999999"))} | {
    "a status at the end": lambda n: head(n, ("x", "y"), OKAY, ends=True),
    "a status of two digits": lambda n: head(n, (":status", "20"), ends=True),
    "a status of letters": lambda n: head(n, (":status", "abc"), ends=True),
    "trailers with a status": lambda n: head(n, OKAY) + frame(
        DATA, 0, n, b"abcdef") + head(n, OKAY, ends=True),
    "DATA first": lambda n: frame(DATA, END_STREAM, n, b"abcdef"),
}
FRAMES = {
    "endless fields": lambda n: frame(HEADERS, 0, n, encode(OKAY)) + frame(
        CONTINUATION, 0, n, encode(("x", "y" * 8000))) * 100,
    "another frame within fields": lambda n: frame(HEADERS, 0, n, encode(OKAY)) + frame(
        PING, 0, 0, bytes(8)),
    "CONTINUATION alone": lambda n: frame(CONTINUATION, END_HEADERS, n, encode(OKAY)),
    "DATA of no stream": lambda n: frame(DATA, 0, 0, b"x"),
    "DATA of a later stream": lambda n: frame(DATA, 0, n + 200, b"x"),
    "padding beyond the frame": lambda n: head(n, OKAY, SIX) + frame(
        DATA, 8, n, b"\xffabc"),
    "a push of nothing": lambda n: frame(PUSH, 0, n, b""),
    "a short PING": lambda n: frame(PING, 0, 0, b"x"),
    "a short GOAWAY": lambda n: frame(GOAWAY, 0, 0, b"x"),
    "SETTINGS of a stream": lambda n: frame(SETTINGS, 0, n, b""),
    "a tiny frame size": lambda n: frame(SETTINGS, 0, 0, b"\0\5\0\0\0\1"),
}


@pytest.mark.parametrize("cases", [LEAVING, RESETS, FIELDS, FRAMES],
                         ids=["GOAWAY", "RST_STREAM", "fields", "frames"])
def test_each_request_ends_and_the_next_is_answered(start, make_origin, reach, cases
                                                    ) -> None:
    """By one proxy and one client: nothing of a case is left for the next one."""
    bad, done = list(cases.values()), set()

    def answer(speaker: Speaker, stream: int) -> None:
        path = dict(speaker.questions[stream].fields)[":path"]
        if path.startswith("/good") or path in done:
            say(speaker, stream)
            return
        done.add(path)
        speaker.flush()
        speaker.sock.sendall(bad[int(path[1:])](stream))

    # Of the 30 s that an idle connection is kept, `wait_settled` waited the last ones
    proxy = start(ON + 'upstream_idle_timeout = "500ms"\n')
    origin = make_origin(speak(answer))
    peer = reach(proxy, origin.port)
    for number, name in enumerate(cases):
        got = peer.wait(peer.get(f"https://a.example/{number}", method="POST"))
        assert got.status in (200, 502) or got.reset is not None, name
        if got.status == 200 and got.ended and got.reset is None:
            assert bytes(got.body) in (b"abcdef", b"/%d" % number), name
            assert cases is LEAVING or cases is RESETS, name
        good = peer.wait(peer.get(f"https://a.example/good{number}"))
        assert bytes(good.body) == b"/good%d" % number, name
    records = proxy.wait_log(1 + 2 * len(cases) - 1)
    assert {one["reason"] for one in records} <= ENDED
    peer.sock.close()
    proxy.wait_settled()


def test_frames_may_come_byte_by_byte(start, make_origin, reach) -> None:
    def answer(speaker: Speaker, stream: int) -> None:
        speaker.flush()
        for one in frame(PING, 0, 0, bytes(8)) + frame(
                SETTINGS, 0, 0, b"\0\3\0\0\0\5") + b"".join(whole(stream)):
            speaker.sock.sendall(bytes([one]))

    proxy, origin = start(), make_origin(speak(answer))
    peer = reach(proxy, origin.port)
    for _ in range(5):
        got = peer.wait(peer.get("https://a.example/"))
        assert (got.status, bytes(got.body)) == (200, b"abcdef")
    assert len(origin.connections) == 1


def test_an_origin_that_takes_no_more_requests_is_dialled(start, make_origin, reach
                                                          ) -> None:
    """By SETTINGS in the middle; those that are under way end."""
    def answer(speaker: Speaker, stream: int) -> None:
        if stream == 3:
            speaker.flush()
            speaker.sock.sendall(frame(SETTINGS, 0, 0, b"\0\3\0\0\0\0"))
        say(speaker, stream)

    proxy, origin = start(), make_origin(speak(answer))
    peer = reach(proxy, origin.port)
    for number in range(6):
        got = peer.wait(peer.get(f"https://a.example/{number}", method="POST"))
        assert bytes(got.body) == b"/%d" % number
    assert len(origin.connections) == 3


def test_a_request_does_not_join_those_that_a_silent_origin_leaves_waiting(
        start, make_origin, reach) -> None:
    """A middlebox had forgotten the connection, or the origin hung: each further
    request joined those that waited there, and got a 504 too."""
    def script(conn: Connection) -> None:
        def answer(speaker: Speaker, stream: int) -> None:
            if conn is origin.connections[0] and stream > 1:
                gone.wait()                 # hears nothing more, and says nothing
            say(speaker, stream)
        speak(answer)(conn)

    gone = threading.Event()
    proxy = start(ON + 'response_timeout = "500ms"\n')
    origin = make_origin(script)
    peer = reach(proxy, origin.port)
    try:
        assert peer.wait(peer.get("https://a.example/0")).status == 200
        assert peer.wait(peer.get("https://a.example/1")).status == 504
        for number in range(2, 5):
            got = peer.wait(peer.get(f"https://a.example/{number}"))
            assert bytes(got.body) == b"/%d" % number
    finally:
        gone.set()
    assert len(origin.connections) == 2


def test_an_origin_that_chooses_http2_and_says_nothing_is_no_reset(
        start, make_origin, reach) -> None:
    """Its connection ends after `connect_timeout` without a frame. Reply and log said
    that the origin had reset it."""
    proxy = start(ON + 'connect_timeout = "300ms"\n')
    origin = make_origin(over_tls(lambda conn: conn.stall(), alpn=("h2",)))
    peer = reach(proxy, origin.port)
    got = peer.wait(peer.get("https://a.example/"))
    assert got.status == 504
    assert b"response_timeout" in got.body
    assert len(origin.connections) == 1, "each would cost another connect_timeout"
    proxy.wait_reason("response_timeout", status=504)
    peer.sock.close()
    proxy.wait_settled()
