"""Every state has a deadline, and every deadline its label (R30)."""

import contextlib
import socket
import threading
import time

import pytest

from tests.support.client import build_request
from tests.support.origin import OK, answer, echo, stall
from tests.support.silent import unanswering
from tests.support.stream import TIMEOUT
from tests.support.wait import wait_until


def test_a_head_that_does_not_end_is_a_408(start_proxy, dial):
    """Bytes that trickle do not move the deadline."""
    proxy = start_proxy("--head-timeout", "300ms")
    client = dial(proxy)
    client.send(b"GET http://example.test/ HTTP/1.1\r\nHo")
    ended = threading.Event()

    def trickle():
        with contextlib.suppress(OSError):
            while not ended.wait(0.05):
                client.send(b"x")

    trickler = threading.Thread(target=trickle)
    trickler.start()
    try:
        reply = client.read_response()
    finally:
        ended.set()
        trickler.join()
    assert (reply.status, reply.get("Connection")) == (408, "close")
    assert proxy.wait_reason("head_timeout")["status"] == 408


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
def test_a_connection_that_is_not_made_is_a_504(start_proxy, dial, method):
    proxy = start_proxy("--connect-timeout", "300ms")
    with unanswering() as authority:
        target = authority if method == "CONNECT" else f"http://{authority}/"
        reply = dial(proxy).ask(method, target, host=authority)
    assert (reply.status, reply.error) == (504, "connection_timeout")
    record = proxy.wait_reason("connect_timeout")
    assert 250 <= record["total_ms"] < TIMEOUT * 1000


def test_a_response_that_does_not_begin_is_a_504(start_proxy, make_origin, dial):
    proxy = start_proxy("--response-timeout", "200ms")
    client = dial(proxy)
    reply = client.get(make_origin(stall).url())
    assert (reply.status, reply.error) == (504, "http_response_timeout")
    proxy.wait_reason("response_timeout")


def test_an_origin_that_takes_no_body_is_a_504(start_proxy, make_origin, dial):
    """Not a 408: the client does not stall."""

    def take_nothing(conn):
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        conn.origin.closing.wait(30)

    proxy = start_proxy("--body-timeout", "300ms", "--response-timeout", "300ms")
    client = dial(proxy)
    client.send(
        build_request(
            "POST", make_origin(take_nothing).url(), f"Content-Length: {1 << 30}"
        )
    )

    def pour():
        with contextlib.suppress(OSError):
            while True:
                client.send(bytes(1 << 16))

    pourer = threading.Thread(target=pour)
    pourer.start()
    try:
        assert client.read_response().status == 504
    finally:
        with contextlib.suppress(OSError):
            client.sock.shutdown(socket.SHUT_RDWR)
        pourer.join()
    proxy.wait_reason("response_timeout")


def test_a_response_that_stops_is_cut(start_proxy, make_origin, dial):
    def half(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf")
        conn.stall()

    proxy = start_proxy("--idle-timeout", "200ms")
    client = dial(proxy)
    client.send(build_request("GET", make_origin(half).url()))
    assert client.read_head().status == 200
    assert client.read_exact(4) == b"half"
    assert client.at_eof()
    proxy.wait_reason("idle_timeout")


def test_a_client_that_takes_nothing_is_cut(start_proxy, make_origin, dial):
    def pour(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            conn.send(bytes(1 << 20))

    proxy = start_proxy("--idle-timeout", "300ms")
    client = dial(proxy, receive_buffer=4096)
    client.send(build_request("GET", make_origin(pour).url()))
    proxy.wait_reason("write_timeout")


def test_a_tunnel_at_rest_is_closed(start_proxy, make_origin, dial):
    proxy = start_proxy("--idle-timeout", "200ms")
    ended = threading.Event()

    def wait_for_the_end(conn):
        if conn.at_eof():
            ended.set()

    tunnel = dial(proxy).tunnel(make_origin(wait_for_the_end).authority)
    assert tunnel.at_eof()
    proxy.wait_reason("idle_timeout")
    assert ended.wait(TIMEOUT), "the origin's side stays open"


def test_traffic_in_one_direction_keeps_a_tunnel(start_proxy, make_origin, dial):
    def tick(conn):
        while not conn.origin.closing.wait(0.1):
            conn.send(b".")

    proxy = start_proxy("--idle-timeout", "500ms")
    tunnel = dial(proxy).tunnel(make_origin(tick).authority)
    assert tunnel.read_exact(12) == b"." * 12  # 1.2 s: more than twice the deadline
    assert proxy.log() == []


@pytest.mark.parametrize("side", ["client", "origin"])
def test_a_half_closed_tunnel_is_not_kept_for_ever(
    start_proxy, make_origin, dial, side
):
    """R36: after the first FIN the drain is bounded, however long `idle` may be."""

    def keep_open(conn):
        if side == "origin":
            conn.half_close()
        conn.origin.closing.wait(TIMEOUT)

    proxy = start_proxy("--half-closed-timeout", "200ms")
    tunnel = dial(proxy).tunnel(make_origin(keep_open).authority)
    if side == "client":
        tunnel.half_close()
        assert tunnel.at_eof()
    proxy.wait_reason("half_closed_timeout")


@pytest.mark.parametrize(
    ("option", "ends"), [("half-closed", True), ("idle", False)])
def test_who_takes_what_the_kernel_holds_is_not_silent(
    start_proxy, make_origin, dial, option, ends
):
    """A tunnel's bytes were past us at once and its deadline began, while a slow client
    still had megabytes to come: they were lost with the reset."""
    data = bytes(range(256)) * 4096

    def pour(conn):
        conn.send(data)
        if ends:
            conn.half_close()
        conn.origin.closing.wait(TIMEOUT)

    proxy = start_proxy(f"--{option}-timeout", "600ms")
    client = dial(proxy, receive_buffer=4096)
    client.tunnel(make_origin(pour).authority)
    while len(client.pending) < len(data) and client.fill():
        time.sleep(0.006)  # 2 s for all of it
    assert client.take(len(client.pending)) == data
    assert client.at_eof()
    assert proxy.wait_reason(f"{option.replace('-', '_')}_timeout")


@pytest.mark.parametrize("rate", ["240", "0"])
def test_who_takes_a_response_slowly_is_not_silent(
    start_proxy, make_origin, dial, rate
):
    """A socket is writable again when a third of its buffer is free, here 0.8 MiB. A
    client that needed longer for that than `idle_timeout` was cut in the middle."""
    body = bytes(range(256)) * 16384  # 4 MiB, of which the kernel takes 2.5 at once

    proxy = start_proxy("--idle-timeout", "500ms", "--min-rate", rate)
    client = dial(proxy, receive_buffer=4096)
    reply = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
    client.send(build_request("GET", make_origin(answer(reply + body)).url()))
    assert client.read_head().status == 200
    while len(client.pending) < len(body) and client.fill():
        time.sleep(0.003)  # some 1 MiB a second
    assert client.take(len(client.pending)) == body
    proxy.wait_reason("ok")


@pytest.mark.parametrize("rate", ["240", "0"])
def test_who_takes_a_body_slowly_is_not_silent(start_proxy, make_origin, dial, rate):
    """The same of an origin: while a body comes, and when the kernel has all of it."""
    body = bytes(range(256)) * 16384

    def take(conn):
        conn.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32768)
        conn.read_head()
        while len(conn.pending) < len(body) and conn.fill():
            time.sleep(0.03)  # slower than body_timeout for all of it
        conn.send(OK)

    short = [f"--{name}-timeout=500ms" for name in ("body", "response")]
    proxy = start_proxy(*short, "--min-rate", rate)
    url = make_origin(take).url()
    reply = dial(proxy).ask("POST", url, f"Content-Length: {len(body)}", body=body)
    assert reply.status == 200


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


def test_a_tunnel_has_a_greatest_age(start_proxy, make_origin, dial):
    """However busy it is."""
    proxy = start_proxy("--lifetime", "500ms")
    tunnel = dial(proxy).tunnel(make_origin(echo).authority)
    try:
        while True:
            tunnel.send(b"x")
            assert tunnel.read_exact(1) == b"x"
    except (OSError, AssertionError):
        pass
    assert proxy.wait_reason("lifetime")["total_ms"] < TIMEOUT * 1000


def test_a_lingering_close_ends(start_proxy, dial):
    """A client that never closes after its refusal is closed all the same."""
    proxy = start_proxy("--linger-timeout", "200ms")
    before = proxy.sockets()
    client = dial(proxy)
    assert client.connect("127.0.0.1:1", auth=None).status == 407
    wait_until(lambda: proxy.sockets() <= before, "the socket closed by the proxy")


def test_a_response_in_time_is_not_late(start_proxy, make_origin, dial):
    """The deadline is for silence, not for the whole."""
    pause = threading.Event()

    def slowly(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n")
        for _ in range(8):
            pause.wait(0.1)
            conn.send(b"s")
        conn.stall()

    proxy = start_proxy("--idle-timeout", "400ms", "--response-timeout", "400ms")
    client = dial(proxy)
    assert client.get(make_origin(slowly).url()).body == b"s" * 8
    assert (
        client.get(make_origin(lambda c: (c.read_request(), c.send(OK))).url()).status
        == 200
    )
