"""The floor closes this host's own addresses too, on every port (R27)."""

import pytest

import cutthrough
from cutthrough.policy.snapshot import Bounds, HostAddresses, Snapshot


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
    from cutthrough.worker import worker

    monkeypatch.setattr(worker, "own_hosts", lambda: ["203.1.113.9", "127.0.0.1"])
    async with cutthrough.serve(
        user="u", password="p", address_floor="on", connect_ports="any"
    ) as proxy:
        reply = await ask(proxy, "203.1.113.9:9")
    assert reply.startswith(b"HTTP/1.1 403 ") and b"address_denied" in reply


def test_an_address_that_the_host_gets_later_is_closed_in_every_snapshot():
    """Addresses were read once, when a snapshot was made; later ones were open."""
    hosts = HostAddresses(["127.0.0.1"])
    old, new = (
        Snapshot({}, Bounds(True, None, [("0.0.0.0", 8888)], hosts))
        for _ in range(2))
    for snapshot in (old, new):
        assert snapshot.floor_outcome("11.22.33.44") == "ok"
        assert snapshot.loop_outcome("11.22.33.44", 8888) == "ok"
    hosts.set(["127.0.0.1", "11.22.33.44"])
    for snapshot in (old, new):
        assert snapshot.floor_outcome("11.22.33.44") == "address_denied"
        assert snapshot.loop_outcome("11.22.33.44", 8888) == "loop_detected"
        assert snapshot.loop_outcome("11.22.33.44", 8889) == "ok"
    hosts.set(["127.0.0.1"])
    assert old.floor_outcome("11.22.33.44") == "ok"
    assert old.loop_outcome("11.22.33.44", 8888) == "ok"


@pytest.mark.parametrize("address", [
    "11.22.33.44", "::ffff:11.22.33.44", "64:ff9b::11.22.33.44", "2002:b16:212c::1",
    "2001:0:808:808:0:0:f4e9:ded3", "2001:0:b16:212c::f7f7:f7f7",
    "2a00::5efe:11.22.33.44", "2a00::200:5efe:11.22.33.44"])
def test_our_own_ipv4_address_is_closed_in_whatever_carries_it(address):
    """NAT64, 6to4, Teredo and ISATAP forms of it passed the floor."""
    snapshot = Snapshot({}, Bounds(True, None, [("0.0.0.0", 8888)], ["11.22.33.44"]))
    assert snapshot.floor_outcome(address) == "address_denied"
    assert snapshot.loop_outcome(address, 8888) == "loop_detected"
    other = Snapshot(
        {}, Bounds(True, None, [("11.22.33.44", 8888)], ["11.22.33.45"]))
    assert other.loop_outcome(address, 8888) == "loop_detected"
    if not address.startswith("::ffff"):
        assert other.floor_outcome(address) == "ok"
