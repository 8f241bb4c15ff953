"""QUIC within UDP ASSOCIATE: a client and a server as they come, and a relay between
the client and the proxy, because the client knows no SOCKS."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

import pytest

from tests.support.certificates import authority, localhost
from tests.support.handovers import start as start
from tests.support.socks import call as call
from tests.support.socks import datagram
from tests.support.socks_udp import FREE
from tests.support.socks_udp import associate as associate

pytestmark = pytest.mark.any_loop


class Side(asyncio.DatagramProtocol):
    """A socket: the other side sends its datagrams on, with another header."""

    def __init__(self, less: int, more: bytes) -> None:
        self._less, self._more = less, more
        self.other: Side | None = None
        self.peer: tuple | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, peer: tuple) -> None:
        self.peer = peer
        self.other.transport.sendto(self._more + data[self._less:], self.other.peer)


@contextlib.asynccontextmanager
async def relay(proxy: tuple, destination: str) -> AsyncIterator[int]:
    """A port: its datagrams go to the destination through this association."""
    loop, head = asyncio.get_running_loop(), datagram(destination, b"")
    near, far = Side(0, head), Side(len(head), b"")
    near.other, far.other, far.peer = far, near, proxy
    for side in near, far:
        await loop.create_datagram_endpoint(
            lambda side=side: side, local_addr=("127.0.0.1", 0))
    try:
        yield near.port
    finally:
        for side in near, far:
            side.transport.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read())
    writer.write_eof()


async def test_streams_of_quic_pass(start, associate):
    from aioquic.asyncio import connect, serve
    from aioquic.quic.configuration import QuicConfiguration

    proxy, tasks = start(FREE), []
    one = associate(proxy)
    own = QuicConfiguration(is_client=False, alpn_protocols=["echo"])
    own.load_cert_chain(*localhost())
    server = await serve(
        "127.0.0.1", 0, configuration=own,
        stream_handler=lambda *pair: tasks.append(asyncio.create_task(echo(*pair))))
    port = server._transport.get_extra_info("sockname")[1]
    trusting = QuicConfiguration(
        alpn_protocols=["echo"], server_name="localhost",
        cafile=str(authority().own.certificate))

    async def ask(client, data: bytes) -> bytes:
        reader, writer = await client.create_stream()
        writer.write(data)
        writer.write_eof()
        return await reader.read()

    pieces = [os.urandom(100_000) for _ in range(3)]
    async with asyncio.timeout(60), relay(
            (one.host, one.port), f"127.0.0.1:{port}") as near, connect(
            "127.0.0.1", near, configuration=trusting) as client:
        assert await asyncio.gather(*(ask(client, one) for one in pieces)) == pieces
    server.close()
    await asyncio.gather(*tasks)
    one.client.close()
    (record,) = proxy.wait_log(1)
    assert (record["method"], record["reason"]) == ("UDP", "ok")
    assert min(record["bytes_up"], record["bytes_down"]) > 300_000
