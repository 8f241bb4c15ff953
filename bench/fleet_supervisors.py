"""Real supervisors among synthetic hosts: `python -m bench fleet --supervisors 3`.

They share one Redis, and have the defaults of a fleet. In each interval every user
sends a request over a kept connection to every supervisor, and changes on every
synthetic host. The figure is Redis' CPU time for an interval. Then nothing changes any
more, and the sums must be the connections that there are. Then one supervisor is
killed: the second figure is the time until the sums are right without it. `errors` are
exchanges that were late, and were made again.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import redis

from bench.children import BenchError
from bench.fleet import MOST_MS, PREFIX, Host, cpu_ms, server
from bench.rows import Row
from cutthrough.config.config import Config
from cutthrough.supervisor.fleet_script import key_of, usage_of
from cutthrough.supervisor.redis_fleet import DAY_S, id_of
from tests.support.admin import DOOR
from tests.support.client import Client, build_request
from tests.support.fleet import Member
from tests.support.origin import Origin
from tests.support.proxy import Proxy
from tests.support.users import basic, hash_of

INTERVAL_S = Config().fleet_interval
#: From the death of a host until the sums are right
MOST_EXACT_S = 3.0
#: For Redis to know all connections of an idle fleet
SETTLED_S = 30.0
PASSWORD = "secret"
#: What nobody reaches: limits are counted, and refuse nothing
POLICY = """
[limits.default]
connections = 1000000
tunnels = 1000000
requests_per_second = 1000000
bytes_per_day = "1TiB"

[[rules]]
action = "allow"
addresses = ["127.0.0.0/8"]
"""


class Fleet:
    """Supervisors with their users' connections, and synthetic hosts."""

    def __init__(self, opened: contextlib.ExitStack, client: redis.Redis, hosts: int,
                 users: int, supervisors: int) -> None:
        self._opened, self._client = opened, client
        self._names = [f"user{number}" for number in range(users)]
        self._ids = [id_of(name) for name in self._names]
        self._directory = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        self._url = f"http://{opened.enter_context(Origin()).authority}/"
        self.members = [self._start(number) for number in range(supervisors)]
        self._connections = [self._connect(member) for member in self.members]
        day = int(time.time()) // DAY_S
        self._synthetic = [Host(client, f"host {number}", day)
                           for number in range(hosts - supervisors)]
        self._round = 0
        self._due = time.monotonic()

    def _start(self, number: int) -> Member:
        path = self._client.get_connection_kwargs()["path"]
        policy = self._directory / "policy.toml"
        hashed = hash_of(PASSWORD)
        policy.write_text(POLICY + "".join(
            f'[users.{name}]\npassword = "{hashed}"\n' for name in self._names))
        return Member(self._opened.enter_context(Proxy(
            self._directory / f"supervisor-{number}", executed=True,
            config=f'{DOOR}via = "host{number}"\npolicy = "{policy}"\n'
                   f'fleet_url = "unix://{path}"\nfleet_prefix = "{PREFIX}"\n')))

    def _connect(self, member: Member) -> list[tuple[Client, bytes]]:
        """A connection of each user, and its request."""
        return [(self._opened.enter_context(Client(member.proxy.port)),
                 build_request("GET", self._url, auth=basic(f"{name}:{PASSWORD}")))
                for name in self._names]

    def turn(self, *, is_idle: bool = False) -> None:
        """An interval; `is_idle`: without a change. One that takes too long on a busy
        machine is longer, and has more steps of the supervisors."""
        if not is_idle:
            self._round += 1
            for connections in self._connections:
                for client, request in connections:
                    client.send(request)
        n = self._round
        changed = ((), "") if is_idle else (
            self._ids, usage_of(n % 4, n % 3, n, 1000 * n))
        for host in self._synthetic:
            host.step(*changed)
        if not is_idle:
            for connections in self._connections:
                for client, _ in connections:
                    if client.read_response("GET").status != 200:
                        raise BenchError("a request was refused")
        now = time.monotonic()
        self._due = max(self._due + INTERVAL_S, now)
        # Not to wait for an event: synthetic hosts exchange at a supervisor's rate, and
        # quicker ones would be a load that no fleet has
        time.sleep(self._due - now)

    def is_exact(self) -> bool:
        """Are the sums the connections and tunnels that there are?"""
        n, synthetic = self._round, len(self._synthetic)
        held = f"{n % 4 * synthetic + len(self.members)} {n % 3 * synthetic} "
        sums = self._client.hmget(key_of(PREFIX), self._ids)
        return all(text is not None and text.startswith(held) for text in sums)

    def wait_exact(self) -> float:
        """Seconds until they are, in which nothing changes."""
        return self._idle_until(self.is_exact, "exact sums")

    def wait_instances(self, hosts: int) -> None:
        self._idle_until(lambda: all(
            member.metric("instances") == hosts for member in self.members),
            f"{hosts} hosts")

    def _idle_until(self, probe: Callable[[], bool], what: str) -> float:
        begun = time.monotonic()
        while not probe():
            if time.monotonic() - begun > SETTLED_S:
                raise BenchError(f"after {SETTLED_S:g} s still not: {what}")
            self.turn(is_idle=True)
        return time.monotonic() - begun

    def kill_one(self) -> None:
        self.members.pop().kill()
        for client, _ in self._connections.pop():
            client.close()


def run_supervisors(hosts: int, users: int, steps: int, supervisors: int) -> Row:
    with contextlib.ExitStack() as opened:
        client = opened.enter_context(server())
        fleet = Fleet(opened, client, hosts, users, supervisors)
        for _ in range(3):  # after these each host knows all users
            fleet.turn()
        fleet.wait_instances(hosts)
        before_ms, begun = cpu_ms(client), time.monotonic()
        before = [member.steps() for member in fleet.members]
        for _ in range(steps):
            fleet.turn()
        step_ms = (cpu_ms(client) - before_ms) / steps
        interval_ms = 1000 * (time.monotonic() - begun) / steps
        own_steps = min(member.steps() - seen for member, seen in zip(
            fleet.members, before, strict=True)) / steps
        settled_s = fleet.wait_exact()
        fleet.wait_instances(hosts)
        failures = sum(member.failures() for member in fleet.members)
        alone = sum(member.said("limits count this program alone")
                    for member in fleet.members)
        fleet.kill_one()
        death_s = fleet.wait_exact()
        fleet.wait_instances(hosts - 1)
    failed = "nothing"
    if alone:
        failed = "alone"
    elif step_ms > MOST_MS and hosts <= 100 and users <= 50:
        failed = "cpu"
    elif death_s > MOST_EXACT_S:
        failed = "death"
    return {"scenario": "fleet-supervisors", "hosts": hosts, "supervisors": supervisors,
            "users": users, "steps": steps, "errors": int(failures),
            "redis_ms": step_ms, "interval_ms": interval_ms,
            "steps_of_a_supervisor": own_steps, "settled_s": settled_s,
            "death_s": death_s, "failed": failed}
