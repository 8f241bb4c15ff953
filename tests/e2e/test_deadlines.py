"""Every state has a deadline, and every deadline its label (R30)."""

import socket
import threading
import time

import pytest

from tests.support.client import build_request
from tests.support.origin import OK, answer
from tests.support.silent import unanswering
from tests.support.stream import TIMEOUT


def test_a_client_that_says_nothing_is_closed(start_proxy, dial):
    """No request was begun: no reply, no line in the log."""
    proxy = start_proxy("--head-timeout", "200ms")
    assert dial(proxy).at_eof()
    assert proxy.lines() == []


@pytest.mark.parametrize("method", ["GET", "CONNECT"])
def test_a_connection_that_is_not_made_is_a_504(start_proxy, dial, method):
    proxy = start_proxy("--connect-timeout", "300ms")
    with unanswering() as authority:
        target = authority if method == "CONNECT" else f"http://{authority}/"
        reply = dial(proxy).ask(method, target, host=authority)
    assert (reply.status, reply.error) == (504, "connection_timeout")
    record = proxy.wait_reason("connect_timeout")
    assert 250 <= record["total_ms"] < TIMEOUT * 1000


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
