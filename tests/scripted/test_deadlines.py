"""Every state has a deadline, and every deadline its label (R30)."""

import contextlib

import pytest

from tests.support.client import build_request
from tests.support.origin import OK
from tests.support.scripted_peers import SLOW, answer, echo, stall

#: A deadline comes with the end of a tick of the wheel, and never early
LATEST_MS = 32


def test_a_head_that_does_not_end_is_a_408(start_proxy, network, dial):
    """Bytes that trickle do not move the deadline."""
    proxy = start_proxy("--head-timeout", "300ms")
    client = dial(proxy)
    client.send(b"GET http://example.test/ HTTP/1.1\r\nHo")
    for _ in range(7):
        network.pass_time(0.05)
        client.send(b"x")
    reply = client.read_response()
    assert (reply.status, reply.get("Connection")) == (408, "close")
    record = proxy.wait_reason("head_timeout")
    assert record["status"] == 408
    assert 300 <= record["total_ms"] <= 300 + LATEST_MS


def test_a_client_that_says_nothing_is_closed(start_proxy, dial):
    """No request was begun: no reply, no line in the log."""
    proxy = start_proxy("--head-timeout", "200ms")
    assert dial(proxy).at_eof()
    assert proxy.lines() == []


@pytest.mark.parametrize(
    "framing", ["Content-Length: 10", "Transfer-Encoding: chunked"]
)
def test_a_body_that_stops_is_a_408(start_proxy, make_origin, dial, framing):
    proxy = start_proxy("--body-timeout", "200ms")
    client = dial(proxy)
    client.send(build_request("POST", make_origin(stall).url(), framing, body=b"5\r\n"))
    reply = client.read_response()
    assert (reply.status, reply.error) == (408, "http_request_error")
    assert client.at_eof()
    proxy.wait_reason("body_timeout")


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_connection_that_is_not_made_is_a_504(start_proxy, network, dial, method):
    proxy = start_proxy("--connect-timeout", "300ms")
    authority = network.silence("127.0.0.9", 80)
    target = authority if method == "CONNECT" else f"http://{authority}/"
    reply = dial(proxy).ask(method, target, host=authority)
    assert (reply.status, reply.error) == (504, "connection_timeout")
    record = proxy.wait_reason("connect_timeout")
    assert 300 <= record["total_ms"] <= 300 + LATEST_MS


def test_a_response_that_does_not_begin_is_a_504(start_proxy, make_origin, dial):
    proxy = start_proxy("--response-timeout", "200ms")
    client = dial(proxy)
    reply = client.get(make_origin(stall).url())
    assert (reply.status, reply.error) == (504, "http_response_timeout")
    proxy.wait_reason("response_timeout")


def test_an_origin_that_takes_no_body_is_a_504(start_proxy, make_origin, dial):
    """Not a 408: the client does not stall."""
    proxy = start_proxy("--body-timeout", "300ms", "--response-timeout", "300ms")
    client = dial(proxy)
    origin = make_origin(None, **SLOW)
    client.send(build_request("POST", origin.url(), f"Content-Length: {1 << 30}"))
    client.send(bytes(4 << 20))
    assert client.read_response().status == 504
    proxy.wait_reason("response_timeout")


def test_a_response_that_stops_is_cut(start_proxy, make_origin, dial):
    def half(conn):
        yield conn.read_request
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        yield conn.stall

    proxy = start_proxy("--idle-timeout", "200ms")
    client = dial(proxy)
    client.send(build_request("GET", make_origin(half).url()))
    assert client.read_head().status == 200
    assert client.read_exact(4) == b"half"
    assert client.at_eof()
    proxy.wait_reason("idle_timeout")


def test_a_client_that_takes_nothing_is_cut(start_proxy, make_origin, dial):
    def pour(conn):
        yield conn.read_request
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            yield conn.send, bytes(1 << 20)

    proxy = start_proxy("--idle-timeout", "300ms")
    client = dial(proxy, **SLOW)
    client.send(build_request("GET", make_origin(pour).url()))
    proxy.wait_reason("write_timeout")


def test_a_tunnel_at_rest_is_closed(start_proxy, make_origin, dial):
    ended = []

    def wait_for_the_end(conn):
        ended.append((yield conn.at_eof))

    proxy = start_proxy("--idle-timeout", "200ms")
    tunnel = dial(proxy).tunnel(make_origin(wait_for_the_end).authority)
    assert tunnel.at_eof()
    proxy.wait_reason("idle_timeout")
    assert ended == [True], "the origin's side stays open"


def test_traffic_in_one_direction_keeps_a_tunnel(
    start_proxy, network, make_origin, dial
):
    proxy = start_proxy("--idle-timeout", "500ms")
    origin = make_origin(None)
    tunnel = dial(proxy).tunnel(origin.authority)
    for _ in range(12):                 # 1.2 s: more than twice the deadline
        network.pass_time(0.1)
        origin.connections[0].send(b".")
    assert tunnel.read_exact(12) == b"." * 12
    assert proxy.log() == []


@pytest.mark.parametrize("side", ["client", "origin"])
def test_a_half_closed_tunnel_is_not_kept_for_ever(
    start_proxy, make_origin, dial, side
):
    """R36: after the first FIN the drain is bounded, however long `idle` may be."""
    proxy = start_proxy("--half-closed-timeout", "200ms")
    origin = make_origin(None)
    tunnel = dial(proxy).tunnel(origin.authority)
    if side == "client":
        tunnel.half_close()
        assert tunnel.at_eof()
    else:
        origin.connections[0].half_close()
    proxy.wait_reason("half_closed_timeout")


@pytest.mark.parametrize(
    ("option", "ends"), [("half-closed", True), ("idle", False)])
def test_who_takes_what_the_kernel_holds_is_not_silent(
    start_proxy, network, make_origin, dial, option, ends
):
    """A tunnel's bytes were past us at once and its deadline began, while a slow client
    still had megabytes to come: they were lost with the reset."""
    data = bytes(range(256)) * 4096
    proxy = start_proxy(f"--{option}-timeout", "600ms")
    origin = make_origin(None)
    client = dial(proxy, window=4096, queue=2_500_000)
    client.tunnel(origin.authority)
    origin.connections[0].send(data)
    if ends:
        origin.connections[0].half_close()
    while len(client.pending) < len(data) and client.fill():
        network.pass_time(0.12)         # 2 s for all of it
    assert client.take(len(client.pending)) == data
    assert client.at_eof()
    assert proxy.wait_reason(f"{option.replace('-', '_')}_timeout")


@pytest.mark.parametrize("rate", ["240", "0"])
def test_who_takes_a_response_slowly_is_not_silent(
    start_proxy, network, make_origin, dial, rate
):
    """A socket is writable again when a third of its buffer is free, here 0.8 MiB. A
    client that needed longer for that than `idle_timeout` was cut in the middle."""
    body = bytes(range(256)) * 16384  # 4 MiB, of which the kernel takes 2.5 at once
    proxy = start_proxy("--idle-timeout", "500ms", "--min-rate", rate)
    client = dial(proxy, window=4096, queue=2_500_000)
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    client.send(build_request("GET", make_origin(answer(reply + body)).url()))
    assert client.read_head().status == 200
    while len(client.pending) < len(body) and client.fill():
        network.pass_time(0.06)       # some 1 MiB a second
    assert client.take(len(client.pending)) == body
    proxy.wait_reason("ok")


@pytest.mark.parametrize("rate", ["240", "0"])
def test_who_takes_a_body_slowly_is_not_silent(
    start_proxy, network, make_origin, dial, rate
):
    """The same of an origin: while a body comes, and when the kernel has all of it."""
    body = bytes(range(256)) * 16384
    short = [f"--{name}-timeout=500ms" for name in ("body", "response")]
    proxy = start_proxy(*short, "--min-rate", rate)
    origin = make_origin(None, window=32768, queue=2_500_000)
    client = dial(proxy)
    client.send(build_request(
        "POST", origin.url(), f"Content-Length: {len(body)}", body=body))
    conn = origin.connections[0]
    conn.read_head()
    while len(conn.pending) < len(body) and conn.fill():
        network.pass_time(0.03)         # slower than body_timeout for all of it
    assert bytes(conn.pending) == body
    conn.send(OK)
    assert client.read_response().status == 200


def test_an_idle_client_connection_is_closed(start_proxy, make_origin, dial):
    """Between two requests: quietly, and with no line of its own in the log."""
    proxy = start_proxy("--keepalive-timeout", "200ms")
    client = dial(proxy)
    assert client.get(make_origin().url()).status == 200
    assert client.at_eof()
    assert [record["reason"] for record in proxy.wait_log()] == ["ok"]


def test_a_kept_connection_has_a_head_deadline_again(start_proxy, make_origin, dial):
    proxy = start_proxy("--head-timeout", "200ms")
    client = dial(proxy)
    assert client.get(make_origin().url()).status == 200
    client.send(b"GET http://half")
    assert client.read_response().status == 408
    proxy.wait_reason("head_timeout")


def test_a_tunnel_has_a_greatest_age(start_proxy, network, make_origin, dial):
    """However busy it is."""
    proxy = start_proxy("--lifetime", "500ms")
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    with contextlib.suppress(OSError, AssertionError):
        while True:
            tunnel.send(b"x")
            assert tunnel.read_exact(1) == b"x"
            network.pass_time(0.04)
    record = proxy.wait_reason("lifetime")
    assert 500 <= record["total_ms"] <= 500 + LATEST_MS


def test_a_lingering_close_ends(start_proxy, network, dial):
    """A client that never closes after its refusal is closed all the same."""
    proxy = start_proxy("--linger-timeout", "200ms")
    client = dial(proxy)
    assert client.connect("127.0.0.1:1", auth=None).status == 407
    network.pass_time(0.15)
    assert proxy.worker.context.live == 1
    network.pass_time(0.1)
    assert proxy.worker.context.live == 0


def test_a_response_in_time_is_not_late(start_proxy, network, make_origin, dial):
    """The deadline is for silence, not for the whole."""
    proxy = start_proxy("--idle-timeout", "400ms", "--response-timeout", "400ms")
    client, origin = dial(proxy), make_origin(None)
    client.send(build_request("GET", origin.url()))
    conn = origin.connections[0]
    conn.read_request()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
    for _ in range(8):
        network.pass_time(0.1)
        conn.send(b"s")
    assert client.read_response().body == b"s" * 8
    assert client.get(make_origin().url()).status == 200
