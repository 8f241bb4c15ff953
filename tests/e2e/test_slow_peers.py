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
from tests.support.stream import TIMEOUT
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


def take_slowly(client, proxy) -> None:
    """Takes an octet at each tick, until the exchange has ended."""
    with contextlib.suppress(OSError):
        for _ in range(int(TIMEOUT / TICK)):
            client.sock.recv(1)
            if proxy.log():
                break
            threading.Event().wait(TICK)


def test_a_reader_that_takes_a_byte_now_and_then_is_cut(start_proxy, make_origin, dial):
    proxy = start_proxy(*RATE)
    client = dial(proxy, receive_buffer=4096)
    client.send(build_request("GET", make_origin(pour).url()))
    client.read_head()
    take_slowly(client, proxy)
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


FILTERS = """
class Whole:
    async def on_request_body(self, flow, body):
        pass

class Pieces:
    async def on_request_body(self, flow, pieces):
        async for piece in pieces:
            yield piece

    on_response_body = on_request_body
"""


@pytest.fixture
def filtering(start_policy):
    return lambda name: start_policy(
        f'[filters.it]\ncode = "bodies:{name}"\nbudget = "60s"\n[[rules]]\n'
        'action = "allow"\naddresses = ["127.0.0.0/8"]\nfilters = ["it"]\n',
        'min_rate = 1000\nmin_rate_grace = "300ms"\n', modules={"bodies": FILTERS})


@pytest.mark.parametrize("name", ["Whole", "Pieces"])
def test_a_body_that_trickles_to_a_filter_is_a_408(filtering, make_origin, dial, name):
    """No rate was owed: each byte moved the deadline, up to `lifetime`."""
    proxy = filtering(name)
    client = dial(proxy)
    client.send(build_request("POST", make_origin().url(), "Content-Length: 1000000"))
    with trickling(client.send, itertools.repeat(b"x")):
        assert client.read_response().status == 408
    proxy.wait_reason("body_timeout")


@pytest.mark.parametrize("name", ["Whole", "Pieces"])
def test_a_body_that_is_fast_enough_comes_to_its_filter(
    filtering, make_origin, dial, name
):
    """80 kB/s; whatever the filter writes, and when."""
    origin, client = make_origin(), dial(filtering(name))
    client.send(build_request("POST", origin.url(), "Content-Length: 163840"))
    with trickling(client.send, iter([bytes(4096)] * 40)):
        assert client.read_response().status == 200
    assert len(origin.requests[0].body) == 163840


def test_a_reader_of_a_filtered_body_owes_a_rate(filtering, make_origin, dial):
    proxy = filtering("Pieces")
    client = dial(proxy, receive_buffer=4096)
    client.send(build_request("GET", make_origin(pour).url()))
    client.read_head()
    take_slowly(client, proxy)
    assert proxy.wait_reason("write_timeout")["total_ms"] < TIMEOUT * 1000


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


def switch(conn):
    conn.read_head()
    conn.send(b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
    echo(conn)
