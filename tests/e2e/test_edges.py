"""Edges that a review found, each with its failure."""

import itertools
import signal
import socket
import threading

import pytest

from tests.support.client import build_request
from tests.support.dns import NameServer
from tests.support.origin import OK, Connection, stall
from tests.support.silent import unanswering
from tests.support.wait import TRIES, takes_less, wait_until

pytestmark = pytest.mark.any_loop


@pytest.mark.parametrize("side", ["client", "origin"])
def test_a_reset_behind_an_end_of_stream_ends_a_tunnel_at_once(
    proxy, make_origin, dial, side
):
    """The pump of the side that had ended was done and the other had nothing to move,
    so neither met the reset, and the tunnel stayed until its deadline."""
    origin = make_origin(lambda conn: conn.origin.closing.wait(30))
    client = dial().tunnel(origin.authority)
    origin.wait_connections(1)
    one, other = client, origin.connections[0]
    if side == "origin":
        one, other = other, one
    one.half_close()
    assert other.at_eof()
    one.reset()
    proxy.wait_reason(f"{side}_reset")


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_reset_right_behind_a_request_ends_it(proxy, make_origin, dial, method):
    """The kernel reports it once, and that was while the request was still to be read:
    it was sent on, and no client was there for its answer until the origin's deadline.
    """
    origin = make_origin(stall)
    client = dial()
    proxy.worker.send_signal(signal.SIGSTOP)
    try:
        body = b"" if method == "GET" else b"body"
        client.send(build_request(
            method, origin.url(), f"Content-Length: {len(body)}", body=body))
        client.reset()
    finally:
        proxy.worker.send_signal(signal.SIGCONT)
    proxy.wait_reason("client_reset")
    assert not origin.received


def test_a_connect_deadline_behind_an_answer_of_the_resolver_is_kept(
    start_proxy, opened, dial
):
    """Armed outside of a batch, the loop did not know it: it came seconds late."""
    try:
        server = opened.enter_context(
            NameServer({f"n{n}.test": "127.0.0.1" for n in range(TRIES)}))
    except PermissionError:
        pytest.skip("binding port 53 needs privilege")
    proxy = start_proxy("--resolvers", server.address, "--connect-timeout", "300ms",
                        "--head-timeout", "60s")
    with unanswering() as address:
        port, numbers = address.partition(":")[2], itertools.count()

        def connect() -> None:
            reply = dial(proxy).connect(f"n{next(numbers)}.test:{port}")
            assert (reply.status, reply.error) == (504, "connection_timeout")

        takes_less(2, connect, "a deadline of 300 ms")


def test_urgent_data_does_not_stop_a_bulk_upload(proxy, make_origin, dial):
    """splice(2) returns EAGAIN at an urgent mark for ever; only recv passes it."""
    def count(conn: Connection) -> None:
        while conn.fill():
            conn.pending.clear()

    origin = make_origin(count)
    client = dial().tunnel(origin.authority)
    piece = b"a" * (1 << 20)
    for _ in range(8):
        client.send(piece)
        client.sock.send(b"!", socket.MSG_OOB)
        client.send(piece)
    client.half_close()
    wait_until(lambda: len(origin.received) >= 16 * len(piece), "every byte")
    assert client.at_eof()


def test_a_refused_head_is_not_logged_with_the_destination_before(
    proxy, make_origin, dial
):
    """The line of a bad request named the host of the request before it."""
    client = dial()
    assert client.get(make_origin().url("/private")).status == 200
    client.send(b"GARBAGE\r\n\r\n")
    assert client.read_response().status == 400
    record = proxy.wait_reason("bad_request")
    assert (record["host"], record["port"], record["url"]) == (None, 0, "-")


def test_an_upload_that_goes_on_beside_its_response_is_not_idle(
    start_proxy, make_origin, dial
):
    """Only the response's bytes moved the deadline."""
    proxy = start_proxy("--idle-timeout", "600ms")

    def script(conn: Connection) -> None:
        head = conn.read_head()
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        conn.read_exact(int(head.get("Content-Length") or 0))
        conn.send(b"ok")

    origin = make_origin(script)
    client = dial(proxy)
    client.send(build_request("POST", origin.url(), "Content-Length: 200"))
    for _ in range(20):
        origin.wait_connections(1)
        got = len(origin.received)
        client.send(b"x" * 10)
        wait_until(lambda before=got: len(origin.received) > before, "the piece")
        assert client.is_silent(0.07) or client.received
    assert client.read_response("POST").body == b"ok"


def test_an_interim_response_goes_on_without_the_body_that_it_claims(
        proxy, make_origin, dial):
    """R17: a 103 with a Content-Length went on, and two readings with it."""
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(b"HTTP/1.1 103 Early Hints\r\nContent-Length: 44\r\n\r\n", OK)

    origin, client = make_origin(script), dial()
    for _ in range(2):
        reply = client.get(origin.url())
        assert (reply.status, reply.body) == (200, b"ok")
    assert client.received.count(b"Content-Length") == 2
    assert len(origin.connections) == 2


def test_nothing_is_connected_to_itself(proxy, dial):
    """A dial to a free port of the ephemeral range was given that port as its own, once
    in a few thousand times, and the client got its own request for an answer."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        port = int(file.read().split()[0]) + 1001
    client = dial()
    for _ in range(300):
        reply = client.get(f"http://127.0.0.1:{port}/")
        assert (reply.status, reply.error) == (502, "connection_refused")


def test_a_pooled_connection_with_unread_bytes_is_not_used(proxy, make_origin, dial):
    """R19: unasked bytes of an origin are no request's answer."""
    def script(conn: Connection) -> None:
        conn.read_request()
        conn.send(OK)
        conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
        said.set()
        stall(conn)

    said = threading.Event()
    origin = make_origin(script)
    for _ in range(20):
        assert dial().get(origin.url()).body == b"ok"
        assert said.wait(30)            # before that no proxy could know
        said.clear()


@pytest.mark.parametrize("scheme", ["NTLM", "negotiate", "Negotiate"])
def test_a_connection_that_credentials_opened_serves_nobody_else(
    proxy, make_origin, dial, scheme
):
    """NTLM and Negotiate authenticate the connection: the next client's request went
    over the same connection, and was answered as the first client's."""
    origin = make_origin()
    assert dial().get(origin.url(), f"Authorization: {scheme} YWxpY2U=").status == 200
    assert dial().get(origin.url()).status == 200
    assert [len(conn.requests) for conn in origin.connections] == [1, 1]
