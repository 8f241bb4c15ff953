"""A host of a fleet dies without a word: the others serve its clients, and a limit that
they share is exact again. Redis is cut off, and limits stay in force.

The hosts are behind HAProxy, and behind IPVS if the kernel has it: `make fleet-ipvs`.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from cutthrough.config.config import Config
from tests.support.balancers import BALANCERS, Balancer
from tests.support.client import Client, build_request
from tests.support.fleet import is_cut
from tests.support.hosts import (
    DIRECTOR,
    HERE,
    OPEN,
    PORT,
    SHARED,
    Host,
    Network,
    Store,
    front_network,
    hosts,
    linked,
    source_of,
    store,
)
from tests.support.origin import Origin, echo, okay
from tests.support.redis import PROGRAM as PROGRAM_OF_REDIS
from tests.support.stream import Closed
from tests.support.wait import PATIENCE, wait_until

pytestmark = [pytest.mark.any_loop, pytest.mark.quiet]

CLIENTS, HOSTS = 24, 3
# Between two requests of a client, so that an emulated machine, too, has time for all
# of them; and after a failure
PACE_S, AGAIN_S = 0.25, 0.02
WITHIN_S, EXACT_WITHIN_S = 2.0, 3.0
# A user's tunnels over all hosts: three at each to begin with
LIMIT = 9
POLICY = f"""
[limits.default]
tunnels = {LIMIT}
[[rules]]
action = "allow"
addresses = ["{HERE}/32"]
"""


class Caller(threading.Thread):
    """One client with an address of its own: asks again and again over a kept
    connection, and makes another when that breaks or is silent for too long."""

    def __init__(self, number: int, url: str) -> None:
        super().__init__()
        self._source, self._url = source_of(number), url
        self.connect_s, self.answer_s = PATIENCE, PATIENCE
        self.served: list[tuple[float, float, str]] = []     # begin, end, host
        self.failures = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        client: Client | None = None
        while not self.stopping.wait(PACE_S if client else AGAIN_S):
            begun = time.monotonic()
            try:
                client = client or Client(
                    PORT, SHARED, source=self._source, connect_s=self.connect_s)
                client.sock.settimeout(self.answer_s)
                reply = client.get(self._url)
                assert reply.status == 200, reply.raw
                host = reply.get("Via").split()[-1]
                self.served.append((begun, time.monotonic(), host))
            except (OSError, Closed, AssertionError):
                self.failures += 1
                if client is not None:
                    client.close()
                client = None
        if client is not None:
            client.close()

    def hosts_since(self, moment: float) -> set[str]:
        return {host for begun, _, host in self.served if begun > moment}

    def served_since(self, moment: float) -> float:
        """When a request that began after the moment was answered; 0: none was."""
        return next((ended for begun, ended, _ in self.served if begun > moment), 0)


@pytest.fixture(params=BALANCERS, ids=lambda balancer: balancer.name)
def balancer(request: pytest.FixtureRequest) -> Balancer:
    if lack := request.param.missing():
        pytest.skip(lack)                    # make fleet-ipvs brings both
    return request.param


@pytest.fixture
def front() -> Iterator[int]:
    with front_network(CLIENTS) as made:
        yield made


class Balanced(NamedTuple):
    """Hosts behind a balancer, which is in the director's network."""

    balancer: Balancer
    director: Network
    every: list[Host]

    def lose(self, host: Host) -> tuple[float, float]:
        """Returns moments at which it was up and down."""
        self.balancer.wait_checked(self.director, host)
        return host.die()


@contextlib.contextmanager
def balanced(balancer: Balancer, directory: Path, front: int, options: str
             ) -> Iterator[Balanced]:
    """`options`: further lines of the configuration of each."""
    with (linked(Network, "director", DIRECTOR, front) as director,
          hosts(directory, HOSTS, front,
                lambda host: balancer.prepare(host) + options) as every,
          balancer.serve(director, every, directory)):
        yield Balanced(balancer, director, every)


@pytest.fixture
def fleet(balancer: Balancer, front: int, tmp_path: Path
          ) -> Iterator[tuple[Balanced, list[Caller]]]:
    with (balanced(balancer, tmp_path, front, OPEN) as behind,
          Origin(okay, "0.0.0.0") as origin):
        callers = [Caller(number, f"http://{HERE}:{origin.port}/")
                   for number in range(CLIENTS)]
        for caller in callers:
            caller.start()
        try:
            yield behind, callers
        finally:
            for caller in callers:
                caller.stopping.set()
            for caller in callers:
                caller.join()


def test_the_others_serve_a_dead_hosts_clients_within_two_seconds(fleet):
    behind, callers = fleet
    every = behind.every
    wait_until(lambda: all(len(caller.served) > 5 for caller in callers), "answers")
    homes = {caller: caller.served[-1][2] for caller in callers}
    counts = Counter(homes.values())
    assert set(counts) == {host.name for host in every}, counts
    orphans = [caller for caller in callers if homes[caller] == every[0].name]
    begun = time.monotonic()
    for caller in orphans:               # else a slow machine is the others' failure
        caller.connect_s = behind.balancer.connect_s
        caller.answer_s = behind.balancer.answer_s
    wait_until(lambda: all(caller.served_since(begun) for caller in orphans), "answers")
    failed = {caller: caller.failures for caller in callers}
    up, down = behind.lose(every[0])
    wait_until(lambda: all(caller.served_since(down) for caller in callers),
               lambda: f"answers: {[caller.served_since(down) for caller in callers]}")
    took = max(caller.served_since(down) for caller in orphans) - up
    print(f"{len(orphans)} of {CLIENTS} clients were served again within {took:.2f} s")
    assert took < WITHIN_S
    for caller in callers:
        if caller in orphans:
            assert every[0].name not in caller.hosts_since(down)
        else:                                # they have noticed nothing
            assert caller.hosts_since(down) == {homes[caller]}
            assert caller.failures == failed[caller]


# A limit that all share


class Tenants:
    """Clients of one user, from many addresses, who ask for tunnels and keep them."""

    def __init__(self, page: str, authority: str) -> None:
        self._authority = authority
        self._sources: dict[str, str] = {}   # an address that a host serves, by host
        for source in map(source_of, range(CLIENTS)):
            with contextlib.closing(Client(PORT, SHARED, source=source)) as client:
                host = client.get(page).get("Via").split()[-1]
            self._sources.setdefault(host, source)
        self.held: dict[str, list[Client]] = {name: [] for name in self._sources}

    def total(self) -> int:
        return sum(map(len, self.held.values()))

    def ask(self, each: int, *names: str) -> int:
        """Asks at each of these hosts, or at all, for so many tunnels, at once; returns
        how many were granted."""
        asked = [(name, Client(PORT, SHARED, source=self._sources[name]))
                 for name in names or tuple(self.held) for _ in range(each)]
        for _, client in asked:
            client.send(build_request("CONNECT", self._authority,
                                      host=self._authority))
        before = self.total()
        for name, client in asked:
            status = client.read_response("CONNECT").status
            assert status in (200, 429)
            if status == 200:
                self.held[name].append(client)
            else:
                client.close()
        return self.total() - before

    def close(self, *names: str) -> None:
        """Those of these hosts, or all."""
        for name in names or tuple(self.held):
            for client in self.held.pop(name):
                client.close()

    def leave(self, count: int) -> None:
        """Closes others than so many."""
        while self.total() > count:
            max(self.held.values(), key=len).pop().close()


Fleet = tuple[list[Host], Tenants, Store]


@pytest.fixture
def shared(balancer: Balancer, front: int, tmp_path: Path) -> Iterator[Fleet]:
    """LIMIT tunnels are held, as many at each host. All of a fleet's options but the
    address of Redis have their defaults."""
    if PROGRAM_OF_REDIS is None:
        pytest.skip("redis-server is not installed")
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    with contextlib.ExitStack() as opened:
        redis = opened.enter_context(store(tmp_path, front))
        every = opened.enter_context(balanced(
            balancer, tmp_path, front,
            f'fleet_url = "{redis.url}"\npolicy = "{policy}"\n')).every
        page = opened.enter_context(Origin(okay, "0.0.0.0"))
        far = opened.enter_context(Origin(echo, "0.0.0.0"))
        tenants = Tenants(f"http://{HERE}:{page.port}/", f"{HERE}:{far.port}")
        opened.callback(tenants.close)
        redis.in_step(HOSTS)
        while tenants.total() < LIMIT:
            assert tenants.ask(1) == HOSTS
            redis.in_step(HOSTS)
        assert redis.tunnels() == LIMIT and not tenants.ask(1)
        yield every, tenants, redis


def wait_exact(tenants: Tenants, redis: Store, since: float, what: str) -> float:
    """Waits until Redis has what is held; the seconds since that moment."""
    wait_until(lambda: redis.tunnels() == tenants.total(),
               lambda: f"{redis.tunnels()} tunnels of {tenants.total()}")
    took = time.monotonic() - since
    print(f"sums were exact {took:.2f} s after {what}")
    return took


def is_exact(tenants: Tenants, redis: Store) -> bool:
    """Is one tunnel granted, where one is left to be had, and no more?"""
    count = len(tenants.held)
    tenants.leave(LIMIT - 1)
    wait_until(lambda: redis.tunnels() == LIMIT - 1, "the end of the others")
    redis.in_step(count)
    first, *others = tenants.held
    granted = tenants.ask(3, first)
    redis.in_step(count)
    return granted == 1 and tenants.ask(1, *others) == 0


def wait_alone(host: Host) -> None:
    wait_until(lambda: "limits count this program alone" in host.stderr(), host.stderr)


def test_sums_are_exact_within_three_seconds_of_a_death(shared: Fleet) -> None:
    every, tenants, redis = shared
    dead = every[0]
    up, _ = dead.die()
    tenants.close(dead.name)
    assert not tenants.ask(1), "its share is not free at once"
    assert wait_exact(tenants, redis, up, "a host's death") < EXACT_WITHIN_S
    wait_until(lambda: tenants.ask(2), "room")
    granted_after = time.monotonic() - up
    redis.in_step(2)
    while tenants.ask(2):
        redis.in_step(2)
    print(f"its share was granted again {granted_after:.2f} s after it; of a limit of "
          f"{LIMIT} are held {tenants.total()}")
    assert granted_after < EXACT_WITHIN_S
    # What a host grants before it knows of the other's: two
    assert LIMIT <= tenants.total() <= LIMIT + 2
    assert redis.tunnels() == tenants.total()
    assert is_exact(tenants, redis)


def test_hosts_without_redis_keep_the_limit_each(shared: Fleet) -> None:
    every, tenants, redis = shared
    with redis.partition(*every):
        assert not tenants.ask(1), "what is known stays in force"
        for host in every:
            wait_alone(host)
        while tenants.ask(3):
            pass
        assert all(len(held) == LIMIT for held in tenants.held.values())
    took = wait_exact(tenants, redis, time.monotonic(), "Redis' return")
    assert took < EXACT_WITHIN_S
    redis.in_step(HOSTS)
    assert not tenants.ask(1)
    assert not any(is_cut(client) for held in tenants.held.values() for client in held)
    assert is_exact(tenants, redis)


def test_a_host_that_is_cut_off_from_redis_keeps_the_limit(shared: Fleet) -> None:
    every, tenants, redis = shared
    *others, alone = (host.name for host in every)
    with redis.partition(every[-1]):
        wait_alone(every[-1])
        wait_until(lambda: redis.tunnels() == LIMIT - len(tenants.held[alone]),
                   "the end of its share")
        redis.in_step(2)
        while tenants.ask(2, *others):
            redis.in_step(2)
        while tenants.ask(3, alone):
            pass
        assert len(tenants.held[alone]) == LIMIT
        assert LIMIT <= tenants.total() - LIMIT <= LIMIT + 2
    took = wait_exact(tenants, redis, time.monotonic(), "its return")
    assert took < EXACT_WITHIN_S
    redis.in_step(HOSTS)
    assert not tenants.ask(1) and is_exact(tenants, redis)


def test_a_host_that_dies_while_redis_is_away_is_subtracted(shared: Fleet) -> None:
    every, tenants, redis = shared
    with redis.partition(*every):
        for host in every:
            wait_alone(host)
        assert tenants.ask(2) == 2 * HOSTS
        every[0].die()
        tenants.close(every[0].name)
    # It expires by the clock of steps, which stood still
    took = wait_exact(tenants, redis, time.monotonic(), "Redis' return, without it")
    assert took < Config().fleet_expiry + EXACT_WITHIN_S
    redis.in_step(2)
    assert not tenants.ask(1) and is_exact(tenants, redis)
