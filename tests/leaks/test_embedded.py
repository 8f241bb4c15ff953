"""The embedded proxy holds nothing when everything has ended: its own counters say so.

One worker in the test's own event loop, under uvloop and asyncio. The black-box tests
count descriptors; here the same is seen from inside: sessions, streams, buffers, pipes,
timers (R31, R33, R36).
"""

import asyncio
import contextlib
import gc
import os
import socket
import threading

import pytest

import cutthrough
from cutthrough.policy.source import Limits, Policy
from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.embedded import loop_name as loop_name
from tests.support.embedded import run, settled
from tests.support.origin import OK, Origin, answer, echo, stall
from tests.support.stream import Closed

# Journeys: each is a client's life, in a thread of its own.


def plain(client: Client, origin: Origin) -> None:
    for _ in range(3):
        assert client.get(origin.url()).status == 200


def upload(client: Client, origin: Origin) -> None:
    body = bytes(2 << 20)
    assert (
        client.ask(
            "POST", origin.url(), f"Content-Length: {len(body)}", body=body
        ).status
        == 200
    )


def tunnel(client: Client, origin: Origin) -> None:
    client.tunnel(origin.authority, early=b"early")
    assert client.read_exact(5) == b"early"
    client.half_close()
    assert client.at_eof()


def bulk_tunnel(client: Client, origin: Origin) -> None:
    """Enough for the relay to change to splice and to hold a pipe."""
    client.tunnel(origin.authority)
    data = bytes(8 << 20)
    sender = threading.Thread(target=client.send, args=(data,))
    sender.start()
    client.read_exact(len(data))
    sender.join()


def urgent_in_bulk(client: Client, origin: Origin) -> None:
    """splice(2) stops at an urgent mark; the relay goes on by copying."""
    client.tunnel(origin.authority)
    client.send(bytes(8 << 20))
    client.sock.send(b"!", socket.MSG_OOB)
    client.send(bytes(4 << 20))
    client.half_close()
    assert client.at_eof()


def leave_in_the_middle(client: Client, origin: Origin) -> None:
    """Both directions are full of bytes that no peer will take."""
    client.tunnel(origin.authority)
    client.sock.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        while True:
            client.send(bytes(1 << 20))
    client.reset()


def refused_connect(client: Client, origin: Origin) -> None:
    assert client.connect(origin.authority, auth=None).status == 407
    assert client.at_eof()


def refused_port(client: Client, origin: Origin) -> None:
    assert client.get("http://127.0.0.1:1/").status == 502


def half_a_head(client: Client, origin: Origin) -> None:
    client.send(b"GET http://127.0.0.1/ HTT")
    client.half_close()
    assert client.at_eof()


def leave_before_the_response(client: Client, origin: Origin) -> None:
    client.send(build_request("GET", origin.url()))
    origin.wait_requests(0)
    origin.wait_connections(1)
    client.reset()


def leave_in_the_response(client: Client, origin: Origin) -> None:
    client.send(build_request("GET", origin.url()))
    client.read_exact(1 << 16)
    client.reset()


def cut_response(client: Client, origin: Origin) -> None:
    client.send(build_request("GET", origin.url()))
    with contextlib.suppress(Closed, ConnectionResetError):
        client.read_response()


def upgrade(client: Client, origin: Origin) -> None:
    assert client.get(origin.url(), "Connection: upgrade", "Upgrade: raw").status == 101
    client.send(b"raw")
    assert client.read_exact(3) == b"raw"


def switch(conn) -> None:
    conn.read_head()
    conn.send(b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: raw\r\n\r\n")
    echo(conn)


def swallow(conn) -> None:
    while conn.fill():
        conn.pending.clear()
        conn.received.clear()


def pour(conn) -> None:
    conn.read_head()
    conn.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    while True:
        conn.send(bytes(1 << 20))


def cut(conn) -> None:
    conn.read_head()
    conn.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")


JOURNEYS = [
    (plain, answer(OK)),
    (upload, answer(OK)),
    (tunnel, echo),
    (bulk_tunnel, echo),
    (urgent_in_bulk, swallow),
    (leave_in_the_middle, lambda conn: conn.origin.closing.wait(30)),
    (refused_connect, answer(OK)),
    (refused_port, answer(OK)),
    (half_a_head, answer(OK)),
    (leave_before_the_response, stall),
    (leave_in_the_response, pour),
    (cut_response, cut),
    (upgrade, switch),
]


# Everything is limited, at more than a journey would meet: each use is given back.
LIMITED = Policy(
    limits={
        "default": Limits(
            connections=100, tunnels=100, requests_per_second=1e6,
            bytes_per_second=1 << 28, tunnel_bytes_per_second=1 << 27,
            bytes_per_day=1 << 40,
        )
    }
)


@pytest.fixture(params=[None, LIMITED], ids=["unlimited", "limited"])
def more(request):
    if request.param is None:
        return {}
    return {"policy": LIMITED, "max_connections_total": 100,
            "max_connections_per_client": 100}


@pytest.fixture
def open_fds():
    return lambda: len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize(
    ("journey", "script"), JOURNEYS, ids=[j.__name__ for j, _ in JOURNEYS]
)
def test_nothing_is_left_after(loop_name, journey, script, more):
    """While the proxy runs, once its client and its origin have gone."""

    async def main() -> None:
        options = {"upstream_idle_timeout": "100ms", "access_log": "off", **more}
        async with cutthrough.serve(user=USER, password=PASSWORD, **options) as proxy:
            with Origin(script) as origin:
                for _ in range(3):
                    await asyncio.to_thread(travel, proxy.port, journey, origin)
            await settled(proxy)
        assert not any(proxy.worker.leaks().values())

    run(loop_name, main)


def travel(port: int, journey, origin: Origin) -> None:
    with Client(port) as client:
        journey(client, origin)


@pytest.mark.parametrize(
    ("journey", "script"), JOURNEYS, ids=[j.__name__ for j, _ in JOURNEYS]
)
def test_nothing_is_left_when_it_is_stopped_meanwhile(
    loop_name, journey, script, more
):
    """The proxy is closed under its clients: their ends are theirs, ours are gone."""

    async def main() -> None:
        with contextlib.ExitStack() as stack:
            origin = stack.enter_context(Origin(script))
            async with cutthrough.serve(
                user=USER, password=PASSWORD, access_log="off",
                drain_timeout="50ms", **more,
            ) as proxy:
                client = stack.enter_context(Client(proxy.port))
                rides = [
                    asyncio.create_task(
                        asyncio.to_thread(quietly, journey, client, origin)
                    )
                ]
                await asyncio.wait(rides, timeout=0.2)
            assert not any(proxy.worker.leaks().values()), proxy.worker.leaks()
            origin.close()
            await asyncio.wait(rides, timeout=20)

    run(loop_name, main)


def quietly(journey, client: Client, origin: Origin) -> None:
    with contextlib.suppress(OSError, AssertionError, ValueError):
        journey(client, origin)


def test_a_line_that_is_dropped_is_forgotten(loop_name, tmp_path):
    """The fields of its head were kept for ever, and of 65 536 tunnels at most: when so
    many lines had been dropped the log had no more fields."""
    pipe = tmp_path / "log"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    def tunnels(port: int, origin: Origin) -> None:
        for _ in range(100):
            with Client(port) as client:
                client.send(build_request(
                    "CONNECT", origin.authority, "X: " + '"' * 2000,
                    host=origin.authority))
                assert client.read_response("CONNECT").status == 200
                client.half_close()
                assert client.at_eof()

    async def main() -> None:
        async with cutthrough.serve(
            user=USER, password=PASSWORD, access_log=str(pipe),
            access_log_format="%{X}>h %[{X}>h %#{X}>h",
        ) as proxy:
            with Origin(echo) as origin:
                while not proxy.worker.log.dropped:
                    await asyncio.to_thread(tunnels, proxy.port, origin)
            await settled(proxy)

    try:
        run(loop_name, main)
    finally:
        os.close(reader)


def test_an_origin_whose_connections_are_not_kept_is_forgotten(loop_name):
    """With none to be kept for an origin a place was kept for each, and never swept."""
    def shelves() -> int:
        gc.collect()
        return sum(type(one).__name__ == "Shelf" for one in gc.get_objects())

    async def main() -> None:
        with Origin() as origin:
            names = [f"{n}.test" for n in range(5)]
            async with cutthrough.serve(
                user=USER, password=PASSWORD, access_log="off",
                upstream_idle_per_origin=0,
                dns_overrides=[f"{name}=127.0.0.1" for name in names],
            ) as proxy:
                before = shelves()
                for name in names:
                    with Client(proxy.port) as client:
                        url = f"http://{name}:{origin.port}/"
                        reply = await asyncio.to_thread(client.get, url)
                        assert reply.status == 200
                assert shelves() == before

    run(loop_name, main)


def test_a_loop_that_served_serves_again(loop_name):
    """Nothing of the first worker stands in the way of the next in the same loop."""

    async def main() -> None:
        with Origin() as origin:
            for _ in range(3):
                async with cutthrough.serve(
                    user=USER, password=PASSWORD, access_log="off"
                ) as proxy:
                    await asyncio.to_thread(travel, proxy.port, plain, origin)

    run(loop_name, main)


def test_two_proxies_share_a_loop(loop_name):
    async def main() -> None:
        with Origin() as origin:
            async with (
                cutthrough.serve(user=USER, password=PASSWORD, access_log="off") as one,
                cutthrough.serve(user=USER, password=PASSWORD, access_log="off") as two,
            ):
                assert one.port != two.port
                for proxy in (one, two):
                    await asyncio.to_thread(travel, proxy.port, plain, origin)

    run(loop_name, main)
