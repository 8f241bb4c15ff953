"""Rates, with one worker and two: as many bytes a second as configured."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from cutthrough.policy.source import Limits
from tests.support.client import Client
from tests.support.limits import attempt
from tests.support.origin import Origin, answer_and_close, flood, stall
from tests.support.stream import chunked
from tests.support.wait import TRIES, takes_less, wait_until
from tests.support.with_policy import command_with

pytestmark = pytest.mark.any_loop

PIECE = bytes(65536)


def is_kept(read, rate: int, begin: float) -> bool:
    """Is the rate kept over two seconds' worth of bytes, without the bytes that a full
    bucket lets through at once? Never more; and less only if the machine is busy, and
    then not always.

    No byte was sent before `begin`: when the clock began with the first byte read, a
    reader that was kept waiting looked like a proxy that was too fast.
    """
    for _ in range(TRIES):
        seen = 0
        while seen < 2 * rate:
            n = read()
            assert n
            seen += n
        end = time.monotonic()
        speed = (seen - rate / 8) / (end - begin)
        assert speed < 1.1 * rate
        if speed > 0.9 * rate:
            return True
        begin = end
    return False


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


def sent_through(client: Client, origin: Origin, size: int) -> None:
    """Sends as many bytes and waits for all of them at the origin.

    If the origin ends with a full buffer, its closed window is all that the proxy hears
    for a minute (FIN_WAIT2), and the tunnel stays.
    """
    before = len(origin.received)
    client.send(bytes(size))
    wait_until(lambda: len(origin.received) >= before + size, "the bytes")


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
    assert is_kept(lambda: len(client.sock.recv(65536)), rate, begin)
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

        assert is_kept(read, rate, begin)
    client.close()


def test_a_tunnel_does_not_catch_up_what_it_rested(limited, make_origin, dial):
    """A bucket that had filled up stood beside the bytes given before: at 8 MB/s, 2 MB
    passed at once, though only 1 MB may."""

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

        def download(origin=origin) -> None:
            begin = time.monotonic()
            assert dial(proxy).get(origin.url()).body == body
            assert time.monotonic() - begin > 1.7

        takes_less(2.3, download)

    def upload() -> None:
        begin = time.monotonic()
        reply = dial(proxy).ask(
            "POST", make_origin().url(), f"Content-Length: {len(body)}", body=body
        )
        assert reply.status == 200
        assert time.monotonic() - begin > 1.7

    takes_less(2.3, upload)


def test_tunnels_of_two_workers_share_the_user_s_rate(limited, make_origin):
    rate = 2_000_000
    proxy = limited("--workers", "2", bytes_per_second=rate)
    origin = make_origin(flood)
    held: list[Client] = []
    try:
        attempt(proxy, origin.authority, 8, held)
        for client in held:
            client.send(b"!")
        seen = [0] * len(held)
        end = 0.0

        def read(n: int) -> None:
            with contextlib.suppress(TimeoutError):
                while (left := end - time.monotonic()) > 0:
                    held[n].sock.settimeout(left)
                    seen[n] += len(held[n].sock.recv(65536))

        for _ in range(TRIES):              # a busy machine is slow now and then
            seen[:] = [0] * len(held)
            end = time.monotonic() + 3
            with ThreadPoolExecutor(len(held)) as readers:
                list(readers.map(read, range(len(held))))
            speed = sum(seen) / 3
            assert speed < 1.1 * rate
            assert min(seen) > 0, "nobody starves"
            if speed > 0.9 * rate:
                break
        else:
            pytest.fail(f"{speed:.0f} bytes a second of {rate}")
    finally:
        for client in held:
            client.close()


def test_a_paced_tunnel_holds_the_sender_back_and_burns_no_time(
    start_proxy, make_origin, dial
):
    rate = 100_000
    proxy = start_proxy(
        command=command_with(Limits(tunnel_bytes_per_second=rate)), executed=True)
    client = dial(proxy).tunnel(make_origin(flood).authority)
    worker = proxy.worker
    before, memory = sum(worker.cpu_times()[:2]), proxy.private_kib()
    client.send(b"!")
    client.read_exact(2 * rate)
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


@pytest.mark.parametrize("splice", ["false", "true"])
def test_one_direction_alone_has_a_rate(limited, make_origin, dial, splice):
    rate = 400_000
    proxy = limited("--splice", splice, bytes_per_second_down=rate)
    client = dial(proxy).tunnel(make_origin(flood).authority)
    begin = time.monotonic()
    client.send(b"!")
    assert is_kept(lambda: len(client.sock.recv(65536)), rate, begin)
    client.close()
    origin = make_origin(stall)
    up = dial(proxy).tunnel(origin.authority)
    takes_less(2, lambda: sent_through(up, origin, 20 * rate))
