"""The cost of a fleet for the stores that its hosts share.

Redis: synthetic hosts run the script of supervisor/fleet_script.py in turn, and each
user changes on each host between two steps. The figure is the CPU time of Redis,
because all hosts share its one core. The CPU time of the hosts is not measured.
With --supervisors some of the hosts are real: fleet_supervisors.py.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import redis

from bench.children import BenchError, end, spawn
from bench.rows import Row, format_row
from cutthrough.supervisor.fleet_script import (
    BATCH,
    SCRIPT,
    Answer,
    Step,
    arguments,
    key_of,
    parse_answer,
    usage_of,
)

PREFIX, DAY = "bench", 20_000
#: Most CPU time of a step by 100 hosts with 50 active users; an interval has 200 ms
MOST_MS = 60.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--hosts", type=int, default=100, help="number of hosts [100]")
    parser.add_argument("--users", type=int, default=50,
                        help="users that are active on all hosts [50]")
    parser.add_argument("--steps", type=int, default=20, help="steps of each host [20]")
    parser.add_argument("--supervisors", type=int, default=0,
                        help="so many of the hosts are the real program [0]")


def run_fleet(options: argparse.Namespace) -> int:
    """Prints two lines. Returns 0 if the limits held."""
    if options.supervisors:
        from bench.fleet_supervisors import run_supervisors  # needs packages of tests

        row = run_supervisors(options.hosts, options.users, options.steps,
                              options.supervisors)
    else:
        row = run_redis(options.hosts, options.users, options.steps)
    print(format_row("perf_fleet", row))
    print(f"redis {row['redis_ms']:.1f} ms")
    return int(row["failed"] != "nothing")


class Host:
    """A member of the fleet, without a proxy."""

    def __init__(self, client: redis.Redis, name: str, day: int = DAY) -> None:
        self._script = client.register_script(SCRIPT)
        self._name, self._session, self._day = name, secrets.token_hex(8), day
        self._number = self._position = 0

    def step(self, users: Sequence[str] = (), usage: str = "") -> int:
        """Publishes this usage of all users. Returns the number of users received."""
        received, sent = 0, 0
        while True:
            answer = self._exchange(dict.fromkeys(users[sent:sent + BATCH], usage))
            if answer.number == 0:
                raise BenchError(f"{self._name} has to publish everything again")
            self._number, self._position = answer.number, answer.position
            received += len(answer.uses)
            sent += BATCH
            if sent >= len(users) and not answer.target:
                return received

    def _exchange(self, usage: dict[str, str]) -> Answer:
        return parse_answer(self._script([key_of(PREFIX)], arguments(Step(
            self._name, self._session, self._number, self._position, 60_000, self._day),
            usage, secrets.token_hex(8))))


def run_redis(hosts: int, users: int, steps: int) -> Row:
    with server() as client:
        ids = [secrets.token_hex(16) for _ in range(users)]
        members = [Host(client, f"host {n}") for n in range(hosts)]
        for n in (1, 2):  # after the second step each host knows all users
            for member in members:
                member.step(ids, usage_of(1, 1, n, 1000 * n))
        before_ms = cpu_ms(client)
        received = 0
        for n in range(3, 3 + steps):
            for member in members:
                received += member.step(ids, usage_of(n % 4, n % 3, n, 1000 * n))
        step_ms = (cpu_ms(client) - before_ms) / steps
        for member in members:
            member.step()
        before_ms = cpu_ms(client)
        known = Host(client, "newcomer").step()
        join_ms = cpu_ms(client) - before_ms
        repeated = sum(member.step() for member in members)
    failed = "nothing"
    if known != users or repeated:
        failed = "join"
    elif step_ms > MOST_MS and hosts <= 100 and users <= 50:
        failed = "cpu"
    return {"scenario": "fleet-redis", "hosts": hosts, "users": users, "steps": steps,
            "errors": 0, "redis_ms": step_ms, "received": received / steps,
            "join_ms": join_ms, "received_after_join": repeated, "failed": failed}


@contextlib.contextmanager
def server() -> Iterator[redis.Redis]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        raise BenchError("redis-server is not installed")
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "socket"
        server = spawn([program, "--port", "0", "--unixsocket", str(path),
                        "--save", "", "--appendonly", "no"], cwd=Path(directory))
        try:
            deadline = time.monotonic() + 20
            while not path.exists():
                if server.poll() is not None or time.monotonic() > deadline:
                    raise BenchError("redis-server does not start")
                time.sleep(0.01)  # between two looks at the path
            with redis.Redis(unix_socket_path=str(path),
                             decode_responses=True) as client:
                yield client
        finally:
            end(server)


def cpu_ms(client: redis.Redis) -> float:
    cpu = client.info("cpu")
    return 1000 * float(cpu["used_cpu_user"] + cpu["used_cpu_sys"])
