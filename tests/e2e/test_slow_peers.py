"""A deadline ends a peer that trickles to hold a connection for ever (R30, R31).

If each byte moves a deadline, the deadline never comes: so peers owe a rate as well.
"""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator

import pytest

from tests.support.client import build_request
from tests.support.origin import OK, echo
from tests.support.stream import TIMEOUT, Closed, chunked
from tests.support.wait import wait_until

pytestmark = pytest.mark.any_loop

#: 1000 bytes a second on an average over 300 ms; no other deadline comes before that.
RATE = ("--min-rate", "1000", "--min-rate-grace", "300ms")
TICK = 0.05


@contextlib.contextmanager
def trickling(send: Callable[[bytes], None], pieces: Iterator[bytes]) -> Iterator[None]:
    """Sends a piece each TICK until the end of the block, or of the connection."""
    ended = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            for piece in pieces:
                send(piece)
                if ended.wait(TICK):
                    return

    thread = threading.Thread(target=trickle)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def take_it_all(conn):
    conn.read_request()
    conn.send(OK)


def pour(conn):
    """More than any buffer holds."""
    conn.read_request()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    while not conn.origin.closing.is_set():
        conn.send(bytes(1 << 20))


@pytest.mark.parametrize(
    ("framing", "piece"),
    [
        ("Content-Length: 1000000", b"x"),
        ("Transfer-Encoding: chunked", b"1\r\nx\r\n"),
        ("Transfer-Encoding: chunked", b"1;" + b"e" * 60 + b"\r\nx\r\n"),
    ],
    ids=["length", "chunks", "extensions"],
)
def test_a_body_that_trickles_is_a_408(start_proxy, make_origin, dial, framing, piece):
    """20 bytes a second; 1.2 kB/s with extensions, but no origin gets extensions."""
    proxy = start_proxy(*RATE)
    client = dial(proxy)
    client.send(build_request("POST", make_origin(take_it_all).url(), framing))
    with trickling(client.send, itertools.repeat(piece)):
        reply = client.read_response()
    assert (reply.status, reply.get("Connection")) == (408, "close")
    assert 299 <= proxy.wait_reason("body_timeout")["total_ms"] < TIMEOUT * 1000


def test_a_body_that_is_fast_enough_is_taken(start_proxy, make_origin, dial):
    """2000 bytes a second, for four times the grace."""
    proxy = start_proxy(*RATE)
    client = dial(proxy)
    origin = make_origin(take_it_all)
    client.send(build_request("POST", origin.url(), "Content-Length: 2500"))
    with trickling(client.send, iter([b"x" * 100] * 25)):
        assert client.read_response().status == 200
    assert origin.requests[0].body == b"x" * 2500


def test_a_body_is_still_cut_by_silence_first(start_proxy, make_origin, dial):
    """Credit with the rate does not allow a body to be silent."""
    proxy = start_proxy("--min-rate-grace", "30s", "--body-timeout", "300ms")
    client = dial(proxy)
    client.send(
        build_request("POST", make_origin(take_it_all).url(), "Content-Length: 99999")
    )
    client.send(bytes(50_000))
    assert client.read_response().status == 408
    assert proxy.wait_reason("body_timeout")["total_ms"] < TIMEOUT * 1000


def test_an_origin_that_takes_a_body_by_the_byte_is_a_504(
    start_proxy, make_origin, dial
):
    """Not a 408: the client would send."""

    def sip(conn):
        conn.read_head()
        while not conn.origin.closing.wait(TICK):
            conn.sock.recv(1)

    proxy = start_proxy(*RATE)
    client = dial(proxy)
    head = build_request("POST", make_origin(sip).url(), "Content-Length: 1000000000")
    client.send(head)
    with trickling(client.send, itertools.repeat(bytes(1 << 22))):
        assert client.read_response().status == 504
        client.reset()
    proxy.wait_reason("response_timeout")


def test_a_reader_that_takes_a_byte_now_and_then_is_cut(start_proxy, make_origin, dial):
    proxy = start_proxy(*RATE)
    client = dial(proxy, receive_buffer=4096)
    client.send(build_request("GET", make_origin(pour).url()))
    client.read_head()
    with contextlib.suppress(OSError):
        for _ in range(int(TIMEOUT / TICK)):
            client.sock.recv(1)
            if proxy.log():
                break
            threading.Event().wait(TICK)
    assert 299 <= proxy.wait_reason("write_timeout")["total_ms"] < TIMEOUT * 1000


def test_a_reader_that_is_fast_enough_is_served(start_proxy, make_origin, dial):
    """80 kB/s, so that megabytes of socket buffers hide every byte of it from epoll."""
    proxy = start_proxy(*RATE)
    client = dial(proxy, receive_buffer=8192)
    client.send(build_request("GET", make_origin(pour).url()))
    client.read_head()
    for _ in range(40):
        client.read_exact(4096)
        threading.Event().wait(TICK)
    assert proxy.log() == []


def test_slow_readers_hold_a_bounded_memory(start_proxy, make_origin, dial):
    """R31: a block of 81 KiB each, and the rounding of the allocator."""
    proxy = start_proxy("--splice", "false", executed=True)
    origin = make_origin(pour)
    dial(proxy).get(origin.url(), auth=None)
    before = proxy.private_kib()
    clients = [dial(proxy, receive_buffer=4096) for _ in range(40)]
    for client in clients:
        client.send(build_request("GET", origin.url()))
    for client in clients:
        client.read_head()
    seen: list[int] = []

    def at_rest() -> bool:
        seen.append(proxy.private_kib())
        return len(seen) > 5 and len(set(seen[-5:])) == 1

    wait_until(at_rest, lambda: f"memory at rest: {seen}")
    assert seen[-1] - before < 40 * 100


def trickle_a_response(conn):
    conn.read_request()
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    with contextlib.suppress(OSError):
        while not conn.origin.closing.wait(TICK):
            conn.send(b"1\r\n.\r\n")


def test_events_may_come_when_they_come(start_proxy, make_origin, dial):
    """An origin owes no rate, because half of the slow responses are so on purpose."""
    proxy = start_proxy(*RATE)
    client = dial(proxy)
    client.send(build_request("GET", make_origin(trickle_a_response).url()))
    client.read_head()
    assert client.read_exact(6 * 24) == b"1\r\n.\r\n" * 24  # 1.2 s: four graces
    assert proxy.log() == []


def test_a_response_that_trickles_has_a_greatest_age(start_proxy, make_origin, dial):
    proxy = start_proxy("--lifetime", "500ms")
    client = dial(proxy)
    client.send(build_request("GET", make_origin(trickle_a_response).url()))
    client.read_head()
    with pytest.raises((Closed, ConnectionResetError)):
        client.read_exact(1 << 20)
    assert 500 <= proxy.wait_reason("lifetime")["total_ms"] < TIMEOUT * 1000


def test_a_response_head_that_trickles_is_a_504(start_proxy, make_origin, dial):
    def trickle_a_head(conn):
        conn.read_request()
        conn.send(b"HTTP/1.1 200 OK\r\nX: ")
        with contextlib.suppress(OSError):
            while not conn.origin.closing.wait(TICK):
                conn.send(b"x")

    proxy = start_proxy("--response-timeout", "300ms")
    reply = dial(proxy).get(make_origin(trickle_a_head).url())
    assert (reply.status, reply.error) == (504, "http_response_timeout")
    proxy.wait_reason("response_timeout")


def test_a_request_has_a_greatest_age(start_proxy, make_origin, dial):
    """If nothing was sent to the client yet, it gets a reply."""
    proxy = start_proxy("--lifetime", "300ms")
    reply = dial(proxy).get(make_origin(lambda conn: conn.stall()).url())
    assert (reply.status, reply.error) == (504, "connection_timeout")
    proxy.wait_reason("lifetime")


def switch(conn):
    conn.read_head()
    conn.send(b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
    echo(conn)


@pytest.mark.parametrize("how", ["CONNECT", "upgrade"])
def test_a_tunnel_owes_no_rate(start_proxy, make_origin, dial, how):
    proxy = start_proxy(*RATE)
    client = dial(proxy)
    if how == "CONNECT":
        client.tunnel(make_origin(echo).authority)
    else:
        fields = ("Connection: upgrade", "Upgrade: raw")
        assert client.get(make_origin(switch).url(), *fields).status == 101
    for _ in range(24):
        client.send(b".")
        assert client.read_exact(1) == b"."
        threading.Event().wait(TICK)
    assert proxy.log() == []


def test_without_a_rate_a_body_may_trickle(start_proxy, make_origin, dial):
    proxy = start_proxy("--min-rate", "0", "--min-rate-grace", "100ms")
    client = dial(proxy)
    origin = make_origin(take_it_all)
    client.send(build_request("POST", origin.url(), "Transfer-Encoding: chunked"))
    with trickling(client.send, iter([b"1\r\nx\r\n"] * 15 + [chunked([])])):
        assert client.read_response().status == 200
    assert origin.requests[0].body == b"x" * 15
