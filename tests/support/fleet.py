"""Proxies of one fleet, as their operators see them, and fixtures of their Redis."""

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.admin import TOLD, Operator
from tests.support.client import Client
from tests.support.proxy import Proxy
from tests.support.redis import PROGRAM, Redis
from tests.support.stream import Closed
from tests.support.wait import PATIENCE, wait_until


@pytest.fixture(scope="module")
def server(directory: Callable[[str], Path]) -> Iterator[Redis]:
    if PROGRAM is None:
        # `make test` installs it
        pytest.skip("redis-server is not installed")
    with contextlib.closing(Redis(directory("redis"))) as running:
        yield running


@pytest.fixture
def redis(server: Redis) -> Iterator[Redis]:
    """A server that runs, and is empty, at the start of each test."""
    if server.process is None:
        server.start()
    server.ask("FLUSHALL")
    yield server
    if server.process is not None:
        server.resume()


@pytest.fixture
def secret(redis: Redis, directory: Callable[[str], Path]) -> Path:
    """The file with the address of Redis."""
    path = directory("secret") / "url"
    path.write_text(redis.url + "\n")
    return path


class Member:
    """One proxy of the fleet, and its operator."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        ports = wait_until(lambda: TOLD.findall(proxy.stderr()), proxy.stderr)
        self.operator = Operator(int(ports[-1]))

    def metric(self, name: str) -> float:
        return self.operator.metrics()[f"fleet_{name}"]

    def steps(self) -> float:
        return self.metric('steps_total{result="ok"}')

    def failures(self) -> float:
        return sum(self.metric(f'steps_total{{result="{reason}"}}')
                   for reason in ("timeout", "connection", "refused", "error"))

    def wait_instances(self, n: int) -> None:
        wait_until(lambda: self.metric("up") and self.metric("instances") == n,
                   lambda: f"{n} instances: {self.proxy.stderr()}")

    def said(self, what: str) -> int:
        line = re.compile(f"^cutthrough: fleet: .*{what}", re.M)
        return len(line.findall(self.proxy.stderr()))

    def wait_said(self, what: str, n: int = 1, seconds: float = PATIENCE) -> None:
        """Waits for `n` such lines; more may follow before anybody looks."""
        wait_until(lambda: self.said(what) >= n, self.proxy.stderr, seconds)

    def kill(self) -> None:
        """Kills all its processes at once, so that none can sign off."""
        gone = [psutil.Process(self.proxy.process.pid), *self.proxy.workers()]
        for process in gone:
            process.suspend()
        for process in gone:
            process.kill()
        self.proxy.process.wait()


def in_step(*members: Member) -> None:
    """Waits for two more steps of each, so that all have exchanged their counts."""
    for _ in range(2):
        before = [member.steps() for member in members]
        for member, seen in zip(members, before, strict=True):
            wait_until(lambda m=member, n=seen: m.steps() >= n + 2, "two more steps")


def is_cut(client: Client) -> bool:
    try:
        client.send(b"?")
        return not client.read_exact(1)
    except (OSError, Closed):
        return True
