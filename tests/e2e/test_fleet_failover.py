"""A host of a fleet dies without a word: the others serve its clients."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.client import Client
from tests.support.haproxy import PROGRAM
from tests.support.hosts import Host, balanced, hosts
from tests.support.origin import Origin, okay
from tests.support.stream import Closed
from tests.support.wait import wait_until

pytestmark = [pytest.mark.any_loop, pytest.mark.quiet, pytest.mark.skipif(
    PROGRAM is None, reason="haproxy is not installed")]

CLIENTS, HOSTS = 24, 3
WITHIN_S = 2.0


class Caller(threading.Thread):
    """One client with an address of its own: asks again and again over a kept
    connection, and makes another when that breaks."""

    def __init__(self, number: int, port: int, url: str) -> None:
        super().__init__()
        self._source, self._port, self._url = f"127.0.0.{number + 2}", port, url
        self.served: list[tuple[float, float, str]] = []     # begin, end, host
        self.failures = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        client: Client | None = None
        while not self.stopping.wait(0.02):
            begun = time.monotonic()
            try:
                client = client or Client(self._port, source=self._source)
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


@pytest.fixture
def fleet(tmp_path) -> Iterator[tuple[list[Host], list[Caller]]]:
    with contextlib.ExitStack() as opened:
        every = opened.enter_context(hosts(tmp_path, HOSTS))
        origin = opened.enter_context(Origin(okay, "0.0.0.0"))
        port = opened.enter_context(balanced(tmp_path, every))
        callers = [Caller(number, port, f"http://10.8.0.1:{origin.port}/")
                   for number in range(CLIENTS)]
        for caller in callers:
            caller.start()
        try:
            yield every, callers
        finally:
            for caller in callers:
                caller.stopping.set()
            for caller in callers:
                caller.join()


def test_the_others_serve_a_dead_hosts_clients_within_two_seconds(fleet):
    every, callers = fleet
    wait_until(lambda: all(len(caller.served) > 5 for caller in callers), "answers")
    homes = {caller: caller.served[-1][2] for caller in callers}
    counts = Counter(homes.values())
    assert set(counts) == {host.name for host in every}, counts
    failed = {caller: caller.failures for caller in callers}
    up, down = every[0].die()
    wait_until(lambda: all(caller.served_since(down) for caller in callers),
               lambda: f"answers: {[caller.served_since(down) for caller in callers]}")
    orphans = [caller for caller in callers if homes[caller] == every[0].name]
    took = max(caller.served_since(down) for caller in orphans) - up
    print(f"{len(orphans)} of {CLIENTS} clients were served again within {took:.2f} s")
    assert took < WITHIN_S
    for caller in callers:
        if caller in orphans:
            assert every[0].name not in caller.hosts_since(down)
        else:                                # they have noticed nothing
            assert caller.hosts_since(down) == {homes[caller]}
            assert caller.failures == failed[caller]
