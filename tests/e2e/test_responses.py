"""Responses that the proxy must not believe, and connections that it must not reuse."""

import contextlib
import errno
import signal
import socket
import threading

import pytest

from tests.support.client import build_request
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop


def test_an_early_answer_reaches_a_client_that_still_sends(proxy, make_origin, dial):
    """RFC 9112 section 9.5: the origin answers and reads no further."""

    def script(conn):
        conn.note(conn.read_head())
        conn.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        conn.half_close()
        conn.origin.closing.wait(15)

    size = 64 << 20
    client = dial()
    client.send(
        build_request("POST", make_origin(script).url(), f"Content-Length: {size}")
    )
    sender = threading.Thread(target=send_until_cut, args=(client, size))
    sender.start()
    try:
        assert client.read_response().status == 413
    finally:
        with contextlib.suppress(OSError):
            client.sock.shutdown(socket.SHUT_RDWR)
        sender.join()


def test_a_request_that_comes_too_late_costs_nothing_of_a_response(
    start_proxy, make_origin, dial
):
    """RFC 9112 section 9.6: the response ended the connection, its client could not
    know yet and sent its next request, and the reset for that took the rest along."""
    body, drains = bytes(range(256)) * 4096, threading.Event()

    def script(conn):
        conn.read_request()
        drains.wait(30)
        conn.send(b"HTTP/1.1 200 OK\r\n\r\n" + body)

    proxy, origin = start_proxy(), make_origin(script)
    client = dial(proxy, receive_buffer=4096)
    client.send(build_request("GET", origin.url()))
    origin.wait_requests(1)
    proxy.signal(signal.SIGTERM)
    wait_until(lambda: is_refused(proxy.port), "the drain")
    drains.set()
    proxy.wait_reason("ok")
    client.send(build_request("GET", origin.url("/late")))
    assert client.read_response().body == body
    assert len(origin.requests) == 1


def is_refused(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == errno.ECONNREFUSED


def send_until_cut(client, size: int) -> None:
    with contextlib.suppress(OSError):
        for _ in range(size >> 16):
            client.send(bytes(1 << 16))
