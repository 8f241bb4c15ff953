"""Name servers that are slow for one name, or are replaced by others."""

import asyncio

import pytest

from cutthrough.net.dns import cares
from cutthrough.net.dns.cares import Names
from tests.support.dns import NameServer
from tests.support.resolving import Asking, in_loop
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
