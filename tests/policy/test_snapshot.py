"""The floor closes this host's own addresses too, on every port (R27)."""

import pytest

import cutthrough


async def ask(proxy, authority: str) -> bytes:
    import asyncio
    import base64

    reader, writer = await asyncio.open_connection(*proxy.address)
    coded = base64.b64encode(b"u:p")
    writer.write(
        b"CONNECT %s HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\n\r\n"
        % (authority.encode(), coded)
    )
    reply = await reader.read(4096)
    writer.close()
    await writer.wait_closed()
    return reply


@pytest.mark.asyncio
async def test_an_address_of_this_host_is_closed_by_the_floor(monkeypatch):
    """With the floor on, a public address of our own was open on every other port."""
    from cutthrough.control import worker

    monkeypatch.setattr(worker, "own_hosts", lambda: ["203.1.113.9", "127.0.0.1"])
    async with cutthrough.serve(
        user="u", password="p", address_floor="on", connect_ports="any"
    ) as proxy:
        reply = await ask(proxy, "203.1.113.9:9")
    assert reply.startswith(b"HTTP/1.1 403 ") and b"address_denied" in reply
