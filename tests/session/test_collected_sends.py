"""Connections whose events come in one batch: their sends are made together, and all
else is as if they had come one by one."""

import asyncio
import contextlib
import random
import socket
import struct
from collections.abc import AsyncIterator, Iterator

import pytest

import cutthrough
from cutthrough.net import sends
from tests.support.client import PASSWORD, USER, Client, build_request
from tests.support.embedded import settled
from tests.support.origin import Connection, Origin, answer, echo

MANY = 12


@pytest.fixture(params=[True, False], ids=["collected", "direct"])
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[cutthrough.Embedded]:
    options = {"access_log": "off", "user": USER, "password": PASSWORD}
    async with cutthrough.serve(**options, collect_sends=request.param) as running:
        if sends.is_on() != request.param:  # a container forbids it
            pytest.skip("no io_uring here")
        yield running
        await settled(running)


@pytest.fixture
def clients(proxy: cutthrough.Embedded) -> Iterator[list[Client]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(contextlib.closing(Client(proxy.port)))
               for _ in range(MANY)]


@pytest.fixture
def echoing() -> Iterator[Origin]:
    with Origin(echo) as running:
        yield running


def open_tunnels(clients: list[Client], origin: Origin) -> None:
    for client in clients:
        client.tunnel(origin.authority)


async def test_pings_of_many_tunnels_arrive(
        proxy: cutthrough.Embedded, clients: list[Client], echoing: Origin) -> None:
    await asyncio.to_thread(open_tunnels, clients, echoing)
    before = sends.stats()["collected"]
    for n, client in enumerate(clients):
        client.send(b"ping %3d" % n)        # the loop does not run meanwhile
    for n, client in enumerate(clients):
        assert await asyncio.to_thread(client.read_exact, 8) == b"ping %3d" % n
    collected = sends.stats()["collected"] - before
    assert collected >= MANY if sends.is_on() else collected == 0


async def test_random_pieces_come_back_as_they_went(
        proxy: cutthrough.Embedded, clients: list[Client], echoing: Origin) -> None:
    rng = random.Random(1)
    await asyncio.to_thread(open_tunnels, clients, echoing)
    for _ in range(20):
        sent = [[rng.randbytes(rng.choice((1, 100, 5000, 16384, 30000)))
                 for _ in range(rng.randrange(3))] for _ in clients]
        for client, pieces in zip(clients, sent, strict=True):
            for piece in pieces:
                client.send(piece)
        for client, pieces in zip(clients, sent, strict=True):
            data = b"".join(pieces)
            assert await asyncio.to_thread(client.read_exact, len(data)) == data


async def test_exchanges_of_many_clients_are_answered(
        proxy: cutthrough.Embedded, clients: list[Client]) -> None:
    with Origin() as origin:
        for _ in range(3):
            for n, client in enumerate(clients):
                client.send(build_request("GET", origin.url(f"/{n}")))
            for client in clients:
                reply = await asyncio.to_thread(client.read_response, "GET")
                assert reply.status == 200
        assert len(origin.requests) == 3 * MANY


async def test_a_close_behind_the_last_answer_leaves_no_byte_behind(
        proxy: cutthrough.Embedded, clients: list[Client]) -> None:
    body = random.Random(2).randbytes(9000)
    head = b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\nConnection: close\r\n\r\n"
    with Origin(answer(head + body)) as origin:
        for client in clients:
            client.send(build_request("GET", origin.url(), "Connection: close"))
        for client in clients:
            reply = await asyncio.to_thread(client.read_response, "GET")
            assert reply.body == body
            assert await asyncio.to_thread(client.at_eof)


async def test_what_a_tunnel_sends_before_its_end_arrives(
        proxy: cutthrough.Embedded, clients: list[Client], echoing: Origin) -> None:
    await asyncio.to_thread(open_tunnels, clients, echoing)
    for client in clients:
        client.send(b"last words")
        client.half_close()
    for client in clients:
        assert await asyncio.to_thread(client.read_exact, 10) == b"last words"
        assert await asyncio.to_thread(client.at_eof)


async def test_a_reset_in_a_batch_ends_its_own_tunnel_alone(
        proxy: cutthrough.Embedded, clients: list[Client]) -> None:
    conns: list[Connection] = []

    def hold(conn: Connection) -> None:
        conns.append(conn)
        echo(conn)

    with Origin(hold) as origin:
        await asyncio.to_thread(open_tunnels, clients, origin)
        await asyncio.to_thread(origin.wait_connections, MANY)
        for client in clients:
            client.send(b"ping")
        lost = conns[0].sock
        lost.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        lost.shutdown(socket.SHUT_RD)
        lost.close()
        whole = 0
        for client in clients:
            try:
                whole += await asyncio.to_thread(client.read_exact, 4) == b"ping"
            except (OSError, AssertionError, EOFError):
                continue
        assert whole >= MANY - 1


async def test_a_slow_reader_gets_all_and_delays_nobody(
        proxy: cutthrough.Embedded, clients: list[Client], echoing: Origin) -> None:
    await asyncio.to_thread(open_tunnels, clients, echoing)
    slow, *others = clients
    slow.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    pieces = [random.Random(n).randbytes(12000) for n in range(6)]

    def send_all() -> None:
        for piece in pieces:
            slow.send(piece)

    sending = asyncio.create_task(asyncio.to_thread(send_all))
    for _ in range(10):
        for other in others:
            other.send(b"ping")
        for other in others:
            assert await asyncio.to_thread(other.read_exact, 4) == b"ping"
    data = b"".join(pieces)
    assert await asyncio.to_thread(slow.read_exact, len(data)) == data
    await sending
