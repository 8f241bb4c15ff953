"""Redis with replicas, as Sentinel keeps them, and a Redis cluster."""

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from cutthrough.config.config import ConfigError
from cutthrough.config.settings import load
from cutthrough.supervisor.redis_fleet import id_of
from tests.support.members import Member, Relay, becomes
from tests.support.peer import SUMS
from tests.support.redis import PASSWORD, PROGRAM, Redis, cluster

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="redis-server is not installed")


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Redis]]:
    with contextlib.ExitStack() as running:
        def begin(name: str, *flags: str) -> Redis:
            (tmp_path / name).mkdir()
            return running.enter_context(
                contextlib.closing(Redis(tmp_path / name, PROGRAM, *flags)))

        yield begin


@pytest.fixture
async def join() -> AsyncIterator[Callable[[str], Member]]:
    members: list[Member] = []

    def begin(url: str) -> Member:
        members.append(Member(f"member {len(members)}", url, ["u"], connections=9,
                              bytes_per_day=10**9))
        members[-1].fleet.start()
        return members[-1]

    yield begin
    for member in members:
        await member.fleet.leave()


async def test_a_replica_that_takes_over_gets_what_it_lacks(start, join):
    """Under the same address, as a name or a balancer that follows Sentinel has it."""
    first = start("first")
    second = start("second", "--replicaof", "127.0.0.1", str(first.port),
                   "--masterauth", PASSWORD)
    relay = Relay(first)
    await relay.start()
    a, b = join(relay.url), join(relay.url)
    a.moved("u", 1000)
    held = [a.holder("u"), b.holder("u")]
    await becomes(lambda: a.uses("u") == b.uses("u") == (2, 0, 1000), "both")
    await becomes(lambda: second.ask("HGET", SUMS, id_of("u")) == "2 0 0", "its copy")
    second.ask("REPLICAOF", "NO", "ONE")      # from here on it lacks all
    b.moved("u", 7)
    held.append(a.holder("u"))
    await becomes(lambda: a.uses("u") == b.uses("u") == (3, 0, 1007), "both")
    first.ask("REPLICAOF", "127.0.0.1", str(second.port))
    await becomes(lambda: a.fleet.state().failures["error"] > 0, "a replica refuses")
    relay.redis = second
    relay.cut()
    relay.mend()
    await becomes(lambda: second.ask("HGET", SUMS, id_of("u")) == "3 0 0", "the sum")
    await becomes(lambda: a.uses("u") == b.uses("u") == (3, 0, 1007), "both")
    held.pop().close()
    await becomes(lambda: b.uses("u") == (2, 0, 1007), "as before")
    for holder in held:
        holder.close()
    await relay.close()


async def test_any_node_of_a_cluster_leads_to_the_one_with_the_keys(tmp_path, join):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    with cluster([tmp_path / "one", tmp_path / "two"]) as nodes:
        a, b = (join(node.url) for node in nodes)
        a.moved("u", 1000)
        held = [a.holder("u"), b.holder("u")]
        await becomes(lambda: a.uses("u") == b.uses("u") == (2, 0, 1000), "both")
        failed = [sum(member.fleet.state().failures.values()) for member in (a, b)]
        assert failed == [0, 0]
        for holder in held:
            holder.close()


def test_an_address_of_sentinels_is_refused():
    with pytest.raises(ConfigError, match="must be redis://"):
        load(["--fleet-url", "redis+sentinel://127.0.0.1:26379/primary/0"])
