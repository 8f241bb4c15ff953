"""This host's addresses as the kernel has them, in a network of a test's own (R27)."""

import asyncio
import errno
import logging
import socket
import subprocess

import pytest

from cutthrough.net.interfaces import Interfaces, open_reports, own_hosts
from tests.support.network import own_network

PATIENCE = 10


def change(verb: str, *addresses: str) -> None:
    for address in addresses:
        subprocess.run(["ip", "addr", verb, address, "dev", "lo"], check=True)


def test_addresses_are_followed_as_they_come_and_go():
    async def follow() -> None:
        told: asyncio.Queue[list[str]] = asyncio.Queue()
        watch = Interfaces(asyncio.get_running_loop(), told.put_nowait)
        try:
            assert set(told.get_nowait()) == {"127.0.0.1", "::1"}
            change("add", "11.22.33.44/32", "2a00::7/128")
            seen: set[str] = set()
            while not {"11.22.33.44", "2a00::7"} <= seen:
                seen = set(await asyncio.wait_for(told.get(), PATIENCE))
            change("del", "11.22.33.44/32")
            while "11.22.33.44" in seen:
                seen = set(await asyncio.wait_for(told.get(), PATIENCE))
            assert "2a00::7" in seen
        finally:
            watch.close()
            watch.close()

    with own_network():
        asyncio.run(follow())


class Full:
    """A socket of reports with a buffer that ran over: it first reports ENOBUFS."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.fileno, self.close = sock.fileno, sock.close
        self.lost = 1

    def recv(self, size: int) -> bytes:
        if self.lost:
            self.lost = 0
            raise OSError(errno.ENOBUFS, "No buffer space available")
        return self.sock.recv(size)


@pytest.mark.asyncio
async def test_reports_that_were_lost_are_made_up_for_by_reading_all():
    ours, kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    ours.setblocking(False)
    hosts = ["127.0.0.1"]
    told: asyncio.Queue[list[str]] = asyncio.Queue()
    watch = Interfaces(asyncio.get_running_loop(), told.put_nowait, lambda: hosts[:],
                       lambda: Full(ours))
    assert told.get_nowait() == hosts
    hosts.append("11.22.33.44")
    kernel.send(b"whatever is left")
    assert await asyncio.wait_for(told.get(), PATIENCE) == hosts
    watch.close()
    kernel.close()


@pytest.mark.asyncio
async def test_without_rtnetlink_addresses_are_looked_at_and_one_line_tells(
        monkeypatch, caplog):
    monkeypatch.setattr("cutthrough.net.interfaces.POLL", 0.01)
    hosts = ["127.0.0.1"]
    told: asyncio.Queue[list[str]] = asyncio.Queue()

    def refuse() -> socket.socket:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    with caplog.at_level(logging.WARNING):
        watch = Interfaces(asyncio.get_running_loop(), told.put_nowait,
                           lambda: hosts[:], refuse)
        assert told.get_nowait() == ["127.0.0.1"]
        hosts.append("11.22.33.44")
        assert await asyncio.wait_for(told.get(), PATIENCE) == hosts
        hosts.remove("127.0.0.1")
        assert await asyncio.wait_for(told.get(), PATIENCE) == hosts
    watch.close()
    assert [record.getMessage() for record in caplog.records] == [
        "rtnetlink is not available (Address family not supported by protocol): this "
        "host's addresses are read once a second"]


def test_a_socket_that_cannot_be_bound_is_closed(monkeypatch):
    made = []

    class Unbound(socket.socket):
        def bind(self, address: object) -> None:
            made.append(self)
            raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(socket, "socket", Unbound)
    with pytest.raises(OSError, match="not permitted"):
        open_reports()
    assert made[0].fileno() == -1


def test_a_zone_is_no_part_of_an_address():
    assert all("%" not in text for text in own_hosts())
