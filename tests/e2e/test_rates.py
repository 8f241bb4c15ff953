"""Rates, with one worker and two: as many bytes a second as was said."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.e2e.test_limits import attempt
from tests.support.client import Client
from tests.support.origin import answer_and_close, flood, stall
from tests.support.stream import chunked
from tests.support.wait import wait_until

PIECE = bytes(65536)


def measure(read, rate: int, begin: float) -> float:
    """Bytes a second of two seconds' worth, without what a full bucket lets through at
    once. None was sent before `begin`: a clock that began with the first one read took
    a reader that was kept waiting for a proxy that was too fast."""
    seen = 0
    while seen < 2 * rate:
        n = read()
        assert n
        seen += n
    return (seen - rate / 8) / (time.monotonic() - begin)


@contextlib.contextmanager
def sending(sock: socket.socket) -> Iterator[None]:
    """Sends as much as is taken, from a thread, until the block ends."""
    over = threading.Event()

    def run() -> None:
        with contextlib.suppress(OSError):
            while not over.is_set():
                sock.sendall(PIECE)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def take_in(conn) -> None:
    while conn.sock.recv(1 << 20):
        pass


PACES = pytest.mark.parametrize(
    ("limit", "splice", "rate"),
    [
        ("bytes_per_second", "false", 400_000),
        ("bytes_per_second", "true", 8_000_000),
        ("tunnel_bytes_per_second", "false", 8_000_000),
        ("tunnel_bytes_per_second", "true", 8_000_000),
    ],
)


@PACES
def test_a_tunnel_comes_down_at_its_rate(
    limited, make_origin, dial, limit, splice, rate
):
    proxy = limited("--splice", splice, **{limit: rate})
    client = dial(proxy).tunnel(make_origin(flood).authority)
    begin = time.monotonic()
    client.send(b"!")
    speed = measure(lambda: len(client.sock.recv(65536)), rate, begin)
    assert speed == pytest.approx(rate, rel=0.1)
    client.close()
    record = proxy.wait_log(1, method="CONNECT")[0]
    assert record["path"] == ("splice" if splice == "true" else "copy")


@PACES
def test_a_tunnel_goes_up_at_its_rate(limited, make_origin, dial, limit, splice, rate):
    proxy = limited("--splice", splice, **{limit: rate})
    origin = make_origin(stall)
    client = dial(proxy).tunnel(origin.authority)
    origin.wait_connections(1)
    conn = origin.connections[0]
    begin = time.monotonic()
    with sending(client.sock):
        received = conn.received  # its own thread reads all the time

        def read() -> int:
            before = len(received)
            return wait_until(lambda: len(received) - before, "more bytes")

        speed = measure(read, rate, begin)
    assert speed == pytest.approx(rate, rel=0.1)
    client.close()


def test_a_tunnel_does_not_catch_up_what_it_rested(limited, make_origin, dial):
    """A bucket that had filled up stood beside what had been given before: 2 MB passed
    at once of 8 MB/s, where 1 MB may."""

    def script(conn) -> None:
        conn.fill()
        conn.send(b"!")
        conn.fill()
        with contextlib.suppress(OSError):
            conn.send(bytes(4_000_000))

    proxy = limited(tunnel_bytes_per_second=8_000_000)
    client = dial(proxy).tunnel(make_origin(script).authority)
    client.send(b"?")
    assert client.read_exact(1) == b"!"
    time.sleep(0.5)  # the rest, less than a quota's second
    begin = time.monotonic()
    client.send(b"?")
    client.read_exact(2_000_000)
    assert time.monotonic() - begin > 0.1


def test_plain_responses_and_uploads_have_the_user_s_rate(limited, make_origin, dial):
    rate = 1_000_000
    proxy = limited(bytes_per_second=rate)
    body = bytes(2 * rate)
    for reply in (
        b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked([body]),
    ):
        origin = make_origin(answer_and_close(reply))
        begin = time.monotonic()
        assert dial(proxy).get(origin.url()).body == body
        assert 1.7 < time.monotonic() - begin < 2.3
    begin = time.monotonic()
    reply = dial(proxy).ask(
        "POST", make_origin().url(), f"Content-Length: {len(body)}", body=body
    )
    assert reply.status == 200
    assert 1.7 < time.monotonic() - begin < 2.3


def test_tunnels_of_two_workers_share_the_user_s_rate(limited, make_origin):
    rate = 2_000_000
    proxy = limited("--workers", "2", bytes_per_second=rate)
    origin = make_origin(flood)
    held: list[Client] = []
    try:
        attempt(proxy, origin.authority, 8, held)
        for client in held:
            client.send(b"!")
        end = time.monotonic() + 3
        seen = [0] * len(held)

        def read(n: int) -> None:
            with contextlib.suppress(TimeoutError):
                while (left := end - time.monotonic()) > 0:
                    held[n].sock.settimeout(left)
                    seen[n] += len(held[n].sock.recv(65536))

        threads = [threading.Thread(target=read, args=(n,)) for n in range(len(held))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(seen) / 3 == pytest.approx(rate, rel=0.1)
        assert min(seen) > 0, "nobody starves"
    finally:
        for client in held:
            client.close()


def test_a_paced_tunnel_holds_the_sender_back_and_burns_no_time(
    limited, make_origin, dial
):
    rate = 100_000
    proxy = limited(tunnel_bytes_per_second=rate)
    client = dial(proxy).tunnel(make_origin(flood).authority)
    worker = proxy.worker
    before, memory = sum(worker.cpu_times()[:2]), proxy.private_kib()
    client.send(b"!")
    measure(lambda: len(client.sock.recv(65536)), rate, time.monotonic())
    assert sum(worker.cpu_times()[:2]) - before < 0.2
    assert proxy.private_kib() - memory < 2048


def test_what_was_held_back_arrives_whole_after_the_sender_s_end(
    limited, make_origin, dial
):
    """R36: an end of stream behind bytes that wait for their turn is not lost."""
    payload = os.urandom(150_000)

    def pour(conn) -> None:
        conn.fill()
        conn.send(payload)

    proxy = limited(tunnel_bytes_per_second=100_000)
    client = dial(proxy).tunnel(make_origin(pour).authority)
    client.send(b"!")
    assert client.read_rest() == payload
    client.close()
    proxy.wait_reason("ok")
