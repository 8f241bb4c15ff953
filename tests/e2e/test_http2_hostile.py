"""Clients of HTTP/2 that break its rules, or try the proxy's patience (R62)."""

import contextlib

import pytest

from tests.support.http2 import (
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    HEADERS,
    PING,
    PROTOCOL_ERROR,
    RST_STREAM,
    frame,
)
from tests.support.http2_listener import LOGIN, OKAY
from tests.support.http2_listener import reach as reach
from tests.support.http2_listener import serve as serve
from tests.support.http2_listener import shared as shared
from tests.support.origin import answer, echo, stall

pytestmark = pytest.mark.any_loop


def test_a_malformed_request_is_logged_and_resets_its_stream(serve, reach, make_origin
                                                             ) -> None:
    proxy = serve()
    peer = reach(proxy)
    stream = peer.get("http://a.b/", LOGIN, ("connection", "close"))
    assert peer.wait(stream).reset == PROTOCOL_ERROR
    (found,) = proxy.wait_log(1)
    assert found["reason"] == "bad_stream"
    got = peer.wait(peer.get(make_origin(answer(OKAY)).url("/"), LOGIN))
    assert got.body == b"hello"


def test_what_http_11_refuses_is_refused_in_its_words(shared, reach) -> None:
    peer = reach(shared)
    got = peer.wait(peer.get("ftp://a.b/", LOGIN))
    assert got.status == 400
    got = peer.wait(peer.get("http://a.b/" + "x" * 9000, LOGIN))
    assert got.status == 414
    got = peer.wait(peer.get("http://a.b/", LOGIN, LOGIN))
    assert got.status == 400


def test_a_head_that_is_too_large_is_answered(serve, reach) -> None:
    proxy = serve()
    peer = reach(proxy)
    got = peer.wait(peer.get("http://a.b/", LOGIN, *[("x", "y" * 1000)] * 17))
    assert got.status == 431
    assert proxy.wait_log(1)[0]["reason"] == "head_too_large"


@pytest.mark.parametrize("reason, data", [
    ("http2_flood", frame(PING, 0, 0, bytes(8)) * 3000),
    ("http2_headers", frame(HEADERS, 0, 1, b"") + frame(9, 0, 1) * 100),
    ("bad_http2", frame(HEADERS, END_HEADERS, 2, b"")),
])
def test_a_flood_ends_its_connection_with_a_reason(serve, reach, reason, data) -> None:
    proxy = serve()
    peer = reach(proxy)
    peer.read()
    with contextlib.suppress(OSError):
        peer.sock.sendall(data)
    code, _ = peer.wait_end()
    assert code == (PROTOCOL_ERROR if reason == "bad_http2" else ENHANCE_YOUR_CALM)
    (found,) = proxy.wait_log(1)
    assert (found["reason"], found["status"]) == (reason, 0)


def test_rapid_resets_end_their_connection(serve, reach, make_origin) -> None:
    """CVE-2023-44487: requests that are reset at once."""
    origin = make_origin(answer(OKAY))
    proxy = serve()
    quiet, peer = reach(proxy), reach(proxy)
    data = b""
    for _ in range(600):
        stream = peer.h2.get_next_available_stream_id()
        block = peer.h2.encoder.encode([
            (":method", "GET"), (":scheme", "http"), (":authority", origin.authority),
            (":path", "/"), LOGIN])
        peer.h2.highest_outbound_stream_id = stream
        data += frame(HEADERS, END_STREAM | END_HEADERS, stream, block)
        data += frame(RST_STREAM, 0, stream, bytes([0, 0, 0, 8]))
    with contextlib.suppress(OSError):
        peer.sock.sendall(data)
    assert peer.wait_end()[0] == ENHANCE_YOUR_CALM
    proxy.wait_reason("http2_resets")
    assert quiet.wait(quiet.get(origin.url("/"), LOGIN)).status == 200


def test_streams_count_as_connections(serve, reach, make_origin) -> None:
    origin = make_origin(echo)
    proxy = serve("max_connections_per_client = 4\n")
    peer = reach(proxy)
    for _ in range(3):
        assert peer.wait_head(peer.connect(origin.authority, LOGIN)).status == 200
    got = peer.wait(peer.connect(origin.authority, LOGIN))
    assert got.status == 429


def test_streams_of_a_connection_are_bounded(serve, reach) -> None:
    proxy = serve("http2_streams = 7\n")
    peer = reach(proxy)
    peer.read()
    assert peer.settings[3] == 7


def test_a_window_that_does_not_open_ends_its_stream_alone(serve, reach, make_origin
                                                           ) -> None:
    """If a client takes nothing, its origin's bytes wait, until a deadline."""
    large = make_origin(answer(
        b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n" + bytes(3_000_000)))
    proxy = serve("idle_timeout = \"500ms\"\n")
    peer = reach(proxy, credit=False)
    stuck = peer.get(large.url("/"), LOGIN)
    assert peer.wait(stuck).reset is not None
    assert not peer.answers[stuck].ended
    assert len(peer.answers[stuck].body) <= 65_535
    (found,) = proxy.wait_log(1)
    assert found["reason"] == "write_timeout"
    peer.h2.increment_flow_control_window(65_535)
    peer.flush()
    assert peer.wait(peer.get(make_origin(answer(OKAY)).url("/"), LOGIN)).status == 200


@pytest.mark.parametrize("is_tunnel", [False, True])
def test_a_stream_that_overflows_its_window_was_reset_by_the_proxy(
        serve, reach, make_origin, is_tunnel) -> None:
    """The log had `client_reset`."""
    origin = make_origin(stall)
    proxy = serve()
    peer = reach(proxy)
    if is_tunnel:
        stream = peer.connect(origin.authority, LOGIN)
        assert peer.wait_head(stream).status == 200
    else:
        stream = peer.request([
            (":method", "POST"), (":scheme", "http"), (":authority", origin.authority),
            (":path", "/"), LOGIN], ends=False)
    # More than the windows, and the buffers of both sockets, have room for
    with contextlib.suppress(OSError):
        peer.sock.sendall(frame(DATA, 0, stream, bytes(16384)) * 900)
    assert peer.wait(stream).reset == FLOW_CONTROL_ERROR
    proxy.wait_reason("bad_stream")


def test_streams_end_for_the_reason_of_their_connection(
        serve, reach, make_origin) -> None:
    """Theirs was `client_reset`."""
    proxy = serve()
    peer = reach(proxy)
    stream = peer.get(make_origin(stall).url("/"), LOGIN)
    peer.sock.sendall(frame(HEADERS, END_HEADERS, 2, b""))
    assert peer.wait_end()[0] == PROTOCOL_ERROR
    assert peer.answers[stream].status == 0
    proxy.wait_log(2, reason="bad_http2")


def test_streams_beyond_the_bound_end_the_connection(serve, reach, make_origin) -> None:
    origin = make_origin(echo)
    proxy = serve("http2_streams = 3\n")
    peer = reach(proxy)
    for _ in range(3):
        assert peer.wait_head(peer.connect(origin.authority, LOGIN)).status == 200
    peer.h2.remote_settings[3] = 100
    peer.h2.remote_settings.acknowledge()
    peer.connect(origin.authority, LOGIN)
    assert peer.wait_end()[0] == PROTOCOL_ERROR
    proxy.wait_reason("bad_http2")
