"""What waits for a slow filter, if each octet comes in a segment of its own."""

import asyncio
import contextlib
import socket
import sys

import cutthrough

MODULE = """
import asyncio

gate, pieces = asyncio.Event(), []

class Slow:
    async def on_request_body(self, flow, body):
        async for piece in body:
            await gate.wait()
            pieces.append(piece)
            yield piece
"""
POLICY = """
[filters.f]
code = "slow_pieces:Slow"
budget = "1m"
[[rules]]
action = "allow"
filters = ["f"]
"""
SENT = 6000


async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"0\r\n\r\n")
    writer.write(b"HTTP/1.1 204 No\r\n\r\n")
    writer.close()
    await writer.wait_closed()


async def test_pieces_count_with_the_memory_that_they_take(tmp_path, monkeypatch):
    """131 072 of them were held for each body: 50 octets of memory for each of its own.
    """
    (tmp_path / "slow_pieces.py").write_text(MODULE)
    (tmp_path / "policy.toml").write_text(POLICY)
    monkeypatch.syspath_prepend(tmp_path)
    async with contextlib.AsyncExitStack() as stack:
        origin = await stack.enter_async_context(
            await asyncio.start_server(take, "127.0.0.1", 0))
        proxy = await stack.enter_async_context(cutthrough.serve(
            user="u", password="p", policy=tmp_path / "policy.toml",
            address_floor="off"))
        reader, writer = await asyncio.open_connection(*proxy.address)
        port = origin.sockets[0].getsockname()[1]
        writer.write(b"POST http://127.0.0.1:%d/ HTTP/1.1\r\nHost: a\r\n"
                     b"Proxy-Authorization: Basic dTpw\r\n"
                     b"Content-Length: %d\r\n\r\n" % (port, SENT))
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(SENT):
            writer.write(b"x")
            for _ in range(2):              # the proxy reads it in a turn of its own
                await asyncio.sleep(0)
        module = sys.modules["slow_pieces"]
        module.gate.set()
        assert b" 204 " in await reader.readline()
        assert b"".join(module.pieces) == b"x" * SENT
        assert max(map(len, module.pieces)) > SENT // 2, "read when there was room"
        writer.close()
        await writer.wait_closed()
