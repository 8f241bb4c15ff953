"""Name servers that are slow for one name, or are replaced by others."""

import asyncio
import contextlib
import socket

import pytest

from cutthrough.net.dns import cares
from cutthrough.net.dns.answer import SHORT
from cutthrough.net.dns.cares import Names
from cutthrough.net.dns.resolver import Resolver, Servers
from tests.support.dns import NameServer
from tests.support.network import own_network
from tests.support.resolving import PATIENCE, Asking, in_loop
from tests.support.resolving import names as names

pytestmark = pytest.mark.dials_out      # see test_resolver

ONE = "192.0.2.1"


@in_loop
async def test_a_name_may_take_longer_than_its_server_s_usual_time(names):
    """c-ares gave a server that usually answers at once 1.8 s, of any `timeout`."""
    names.zone |= {f"quick{n}.test": ONE for n in range(8)}
    names.zone["slow.test"] = None
    async with Asking(names.address, timeout=60.0) as resolver:
        for n in range(8):
            await resolver.query(f"quick{n}.test")
        slow = asyncio.create_task(resolver.query("slow.test"))
        await resolver.wait(lambda: names.asked.count("slow.test") > 3 or slow.done(),
                            "all tries of c-ares")
        names.zone["slow.test"] = ONE
        assert await slow == [ONE]
        assert (resolver.queries, resolver.stats()["open"]) == (9, 0)


class FromFile(Asking):
    """Asks the server that a file names, as c-ares does."""

    def _open(self) -> Names:
        with open(cares.RESOLV_CONF) as file:
            return Names(nameservers=[file.read()], loop=asyncio.get_running_loop(),
                         timeout=0.1, tries=1)


@in_loop
async def test_the_system_s_name_servers_may_change(names, monkeypatch, tmp_path):
    """/etc/resolv.conf is often a link to a file elsewhere, whose change c-ares does
    not see: each name failed, after a reload too, until the program was restarted."""
    link, file = tmp_path / "resolv.conf", tmp_path / "by-the-network"
    monkeypatch.setattr(cares, "RESOLV_CONF", str(link))
    names.zone |= {"a.test": ONE, "b.test": ONE}
    with NameServer({"a.test": "192.0.2.2"}) as first:
        file.write_text(first.address)
        link.symlink_to(file)
        async with FromFile(timeout=60.0) as resolver:
            assert await resolver.query("a.test") == ["192.0.2.2"]
            first.zone["b.test"] = None
            waiting = asyncio.create_task(resolver.query("b.test"))
            await resolver.wait(lambda: "b.test" in first.asked, "a silent server")
            file.with_suffix(".new").write_text(names.address)
            file.with_suffix(".new").rename(file)
            assert await resolver.query("a.test") == [ONE]
            assert await waiting == [ONE]
            assert not resolver._retired


@pytest.mark.parametrize("dnssec", [False, True], ids=["c-ares", "dnssec"])
def test_no_free_port_is_no_silence_of_the_servers(dnssec):
    """connect(2) of a UDP socket fails with EAGAIN then, as if it were under way.
    It was `dns_timeout`, or `dns_error`, and was remembered for the name."""
    @in_loop
    async def run() -> None:
        resolver = Resolver(asyncio.get_running_loop(),
                            Servers(["127.0.0.1"], 0.2, dnssec))
        answer = asyncio.get_running_loop().create_future()
        resolver.resolve(b"a.test", answer.set_result)
        assert await asyncio.wait_for(answer, PATIENCE) == SHORT
        assert resolver.cached(b"a.test") is None
        await resolver.close()

    with own_network(), contextlib.ExitStack() as opened:
        with open("/proc/sys/net/ipv4/ip_local_port_range", "w") as file:
            file.write("40000 40003")
        for _ in range(4):
            taken = opened.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            taken.bind(("", 0))
        run()
