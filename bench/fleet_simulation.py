"""The failure of a host in a fleet of a hundred: `python -m bench fleet-simulation`.

A discrete-event simulation. All its figures are in bench/results: field.json, and
storm-costs.json for handshakes and password hashes (`--measure` writes it). The
simulation first reproduces the measurements of one host, and ends with exit status 1 if
a point is off by more than TOLERANCE:

    the rate of kept requests of 100 connections, of requests with a connection each,
    of tunnels that are made, and of TLS handshakes in tunnels
    the median latency of 5000 requests a second, about half of what the machine can do

In this part client, proxy and origin share the two cores of the machine. If a program
has work, it takes a core and keeps the core until its queue is empty or SLICE_US is
over. CPU times come from the same row, so they include waking and switching.

Then hosts are behind L4 by Maglev hashing of clients, and one fails without closing its
connections:

    its clients' connections are silent ─> each notices at its next request's time-out
    health checks fail, DOWN of them     ─> L4 takes the host out of its table
    a SYN to the dead host is repeated after 1, 3, 7 s … (RFC 6298)
    a live host: a handshake on a worker, and a hash on a helper if it does not know
    the credentials; both beside the host's other load

The model has no network, no parents, no origins in the second part, and no scheduler
except for the rule above. With ten connections its latency is almost a quarter too low
(`outside`), because the scheduler often puts a program on the core of its waker.
"""

from __future__ import annotations

import hashlib
import json
import random
import statistics
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simpy

from bench.children import BenchError
from bench.rows import Row, format_row

RESULTS = Path(__file__).parent / "results"
STORM = RESULTS / "storm-costs.json"
#: Most relative error of a simulated point
TOLERANCE = 0.2
#: A program's turn on a core if another waits: the scheduler's base slice
SLICE_US = 3000.0
#: Entries of Maglev's table: the default of IPVS' `mh`, a prime
TABLE = 4093


@dataclass(frozen=True)
class Point:
    """A row of field.json: a closed loop of `conns` connections, or `rate` a second."""

    name: str
    conns: int
    rate: float
    figure: str                             # name of the compared figure
    parts_us: tuple[float, float, float]    # CPU of client, proxy and origin
    measured: float


RPS, P50 = "throughput_median_rps", "latency_p50_median_ms"
#: Scenarios of field.json: connections, or requests a second, and the compared figure
POINTS = (
    ("plain-keepalive", 100, 0.0, RPS), ("plain-new", 20, 0.0, RPS),
    ("connect-setup", 20, 0.0, RPS), ("tls-setup", 20, 0.0, RPS),
    ("rate-5000", 0, 5000.0, P50), ("plain-keepalive-c10", 10, 0.0, P50),
)
#: Points beyond the model, see above
OUTSIDE = {"plain-keepalive-c10"}


def read_summary(scenario: str, file: Path = RESULTS / "field.json") -> Row:
    for row in json.loads(file.read_text())["summaries"]:
        if (row["scenario"], row["proxy"]) == (scenario, "cutthrough"):
            return dict(row)
    raise BenchError(f"{file.name} has no {scenario} of cutthrough")


def _number(row: Row, name: str) -> float:
    value = row[name]
    assert isinstance(value, (int, float)), name
    return float(value)


def read_points() -> list[Point]:
    points = []
    for scenario, conns, rate, figure in POINTS:
        row = read_summary(scenario)
        client, proxy, origin = (_number(row, f"{role}_us_per_request_median")
                                 for role in ("client", "cpu", "origin"))
        points.append(Point(scenario, conns, rate, figure, (client, proxy, origin),
                            _number(row, figure)))
    return points


class Program:
    """A single-threaded program, and its queue of work."""

    def __init__(self, env: simpy.Environment, cores: simpy.Resource) -> None:
        self._env, self._cores = env, cores
        self._queue: deque[tuple[float, simpy.Event]] = deque()
        self._bell = env.event()
        env.process(self._run())

    def work(self, us: float) -> simpy.Event:
        """Returns an event of the time when `us` of this work are done."""
        done = self._env.event()
        self._queue.append((us, done))
        if len(self._queue) == 1 and not self._bell.triggered:
            self._bell.succeed()
        return done

    def _run(self) -> Iterator[Any]:
        while True:
            if not self._queue:
                self._bell = self._env.event()
                yield self._bell
            with self._cores.request() as core:
                yield core
                until = self._env.now + SLICE_US
                while self._queue and self._env.now < until:
                    us, done = self._queue.popleft()
                    yield self._env.timeout(us)
                    done.succeed()


def play(point: Point, seconds: float = 0.5, cores: int = 2) -> float:
    """Returns the simulated figure of a point; the first tenth does not count."""
    env = simpy.Environment()
    shared = simpy.Resource(env, cores)
    client, proxy, origin = (Program(env, shared) for _ in range(3))
    client_us, proxy_us, origin_us = point.parts_us
    draw = random.Random(1)
    ended: list[tuple[float, float]] = []

    def exchange() -> Iterator[Any]:
        begun = env.now
        spread = draw.uniform(0.8, 1.2)         # else all connections stay in step
        yield client.work(client_us / 2 * spread)
        yield proxy.work(proxy_us / 2 * spread)
        yield origin.work(origin_us * spread)
        yield proxy.work(proxy_us / 2 * spread)
        yield client.work(client_us / 2 * spread)
        ended.append((env.now, env.now - begun))

    def connection() -> Iterator[Any]:
        while True:
            yield from exchange()

    def arrivals() -> Iterator[Any]:
        while True:
            yield env.timeout(1e6 / point.rate)
            env.process(exchange())

    for _ in range(point.conns):
        env.process(connection())
    if point.rate:
        env.process(arrivals())
    end = seconds * 1e6
    env.run(until=end)
    late = [latency for at, latency in ended if at >= end / 10]
    if point.figure == P50:
        return statistics.median(late) / 1000
    return len(late) / (seconds * 0.9)


def reproduce() -> list[Row]:
    """Returns each measured point beside its simulation."""
    rows: list[Row] = []
    for point in read_points():
        simulated = play(point)
        rows.append({"point": point.name, "figure": point.figure,
                     "measured": point.measured, "simulated": simulated,
                     "off": simulated / point.measured - 1,
                     "outside": point.name in OUTSIDE})
    return rows


def read_storm(file: Path = STORM) -> dict[str, float]:
    """Returns the times of handshakes (µs) and password hashes (s)."""
    return dict(json.loads(file.read_text())["figures"])


# The fleet


def _hash(text: str, seed: int) -> int:
    return int.from_bytes(
        hashlib.blake2b(text.encode(), digest_size=8, salt=b"%d" % seed).digest())


def maglev(hosts: list[str], size: int = TABLE) -> list[str]:
    """Returns the table of Eisenbud et al. (NSDI 2016, section 3.4): hosts by entry."""
    steps = {host: (_hash(host, 1) % size, _hash(host, 2) % (size - 1) + 1)
             for host in hosts}
    following = dict.fromkeys(hosts, 0)
    table = [""] * size
    free = size
    while True:
        for host in hosts:
            offset, skip = steps[host]
            while table[entry := (offset + following[host] * skip) % size]:
                following[host] += 1
            table[entry] = host
            free -= 1
            if not free:
                return table


@dataclass(frozen=True)
class Fleet:
    """The fleet of a prediction."""

    hosts: int = 100
    workers: int = 2                        # of a host, on as many cores
    clients: int = 1000                     # of a host, each with one connection
    load: float = 0.5                       # of a worker's CPU before the failure
    pause: float = 5.0                      # between two requests of a client, mean
    patience: float = 5.0                   # a client's time-out
    check: float = 0.5                      # seconds between two health checks
    down: int = 3                           # failed checks
    shared: bool = False                    # all hosts know verified credentials
    seed: int = 1


class Storm:
    """One failure: the clients of the dead host, and the hosts that get them."""

    def __init__(self, fleet: Fleet, storm: dict[str, float]) -> None:
        self._fleet, self._storm = fleet, storm
        self._draw = random.Random(fleet.seed)
        self.env = simpy.Environment()
        names = [f"host{number}" for number in range(fleet.hosts)]
        self._dead = names[0]
        before, after = maglev(names), maglev(names[1:])
        clients = [_hash(f"client{number}", 3) % TABLE
                   for number in range(fleet.hosts * fleet.clients)]
        self.counts = Counter(before[place] for place in clients)
        self.later = Counter(after[place] for place in clients)
        self.moved = [after[place] for place in clients if before[place] == self._dead]
        self.others_moved = sum(before[place] not in (self._dead, after[place])
                                for place in clients) / len(clients)
        self._workers = {name: simpy.Resource(self.env, fleet.workers)
                         for name in names[1:]}
        self._helpers = {name: simpy.Resource(self.env, fleet.workers)
                         for name in names[1:]}
        self.removed = self._draw.uniform(0, fleet.check) + (
            fleet.down - 1) * fleet.check
        self.served: list[float] = []       # time of each answer, since the failure
        self.waits: list[float] = []        # of these, from the SYN's answer
        self.most_hashes = 0                # longest queue of a host

    def run(self) -> None:
        for host in self.moved:
            self.env.process(self._client(host))
        self.env.run()

    def _client(self, host: str) -> Iterator[Any]:
        fleet = self._fleet
        yield self.env.timeout(self._draw.expovariate(1 / fleet.pause) + fleet.patience)
        wait = 1.0
        while self.env.now < self.removed:   # the SYN is repeated
            yield self.env.timeout(wait)
            wait *= 2
        begun = self.env.now
        # The host's own load goes first
        left = 1 - fleet.load * self.later[host] / (
            sum(self.counts.values()) / fleet.hosts)
        if left <= 0:
            raise BenchError(f"{host} has more load than cores")
        yield from self._use(self._workers[host],
                             self._storm["handshake_us"] / 1e6 / left)
        if not fleet.shared:
            self.most_hashes = max(self.most_hashes,
                                   len(self._helpers[host].queue) + 1)
            yield from self._use(self._helpers[host], self._storm["hash_s"] / left)
        self.served.append(self.env.now)
        self.waits.append(self.env.now - begun)

    def _use(self, resource: simpy.Resource, seconds: float) -> Iterator[Any]:
        with resource.request() as turn:
            yield turn
            yield self.env.timeout(seconds)

    def row(self) -> Row:
        fleet, mean = self._fleet, sum(self.counts.values()) / self._fleet.hosts
        waits = sorted(self.waits)
        return {
            "hosts": fleet.hosts, "workers": fleet.workers, "load": fleet.load,
            "clients": len(self.served), "known": fleet.shared,
            "fullest_host": max(self.counts.values()) / mean,
            "fullest_host_after": max(self.later.values()) / mean,
            "others_moved_percent": self.others_moved * 100,
            "removed_s": self.removed,
            "served_p50_s": statistics.median(self.served),
            "served_last_s": max(self.served),
            "wait_p50_s": statistics.median(waits),
            "wait_p99_s": waits[len(waits) * 99 // 100],
            "wait_last_s": waits[-1], "most_hashes_of_a_host": self.most_hashes}


def excess(hosts: int, rate: float, burst: float, delay: float, factor: float = 10,
           seconds: float = 10, seed: int = 1) -> Row:
    """Returns one user's requests beyond its limit, if it sends `factor` times its rate
    to all hosts alike. Each host knows the admissions of the others `delay` s later."""
    draw = random.Random(seed)
    admitted: list[float] = []              # times of admitted requests
    own: list[list[float]] = [[] for _ in range(hosts)]
    known, known_own = 0, [0] * hosts       # of these, older than the delay
    at = 0.0
    while (at := at + draw.expovariate(rate * factor)) < seconds:
        host = draw.randrange(hosts)
        while known < len(admitted) and admitted[known] <= at - delay:
            known += 1
        local = own[host]
        while known_own[host] < len(local) and local[known_own[host]] <= at - delay:
            known_own[host] += 1
        used = len(local) + known - known_own[host]
        if used + 1 <= burst + rate * at:
            admitted.append(at)
            local.append(at)
    allowed = burst + rate * seconds
    return {"hosts": hosts, "rate": rate, "burst": burst, "delay_s": delay,
            "admitted": len(admitted), "allowed": allowed,
            "excess": max(0.0, len(admitted) - allowed),
            "bound": (hosts - 1) * (burst + rate * delay)}


def predict() -> list[tuple[str, Row]]:
    storm = read_storm()
    rows: list[tuple[str, Row]] = []
    for fleet in (Fleet(hosts=3, load=0.4), Fleet(hosts=3, load=0.4, shared=True),
                  Fleet(hosts=10), Fleet(hosts=100), Fleet(hosts=100, shared=True),
                  Fleet(hosts=100, load=0.8)):
        death = Storm(fleet, storm)
        death.run()
        rows.append(("fleet_death", death.row()))
    for hosts in (3, 10, 100):
        rows.append(("fleet_limit", excess(hosts, 50, 50, 0.2)))
    request = _number(read_summary("plain-keepalive"), "cpu_us_per_request_median")
    tunnel = _number(read_summary("connect-setup"), "cpu_us_per_request_median")
    rows.append(("fleet_capacity", {
        "hosts": 100, "workers": 2, "load": 0.5,
        "requests_s": 100 * 2 * 0.5e6 / request, "tunnels_s": 100 * 2 * 0.5e6 / tunnel,
        "handshakes_s": 100 * 2 * 0.5e6 / storm["handshake_us"],
        "cold_logins_s": 100 * 2 * 0.5 / storm["hash_s"]}))
    return rows


def run_simulation(*, measure: bool = False) -> int:
    if measure:
        from bench import storm_costs

        storm_costs.write_costs(STORM)
    rows = reproduce()
    for row in rows:
        print(format_row("fleet_point", row))
    if any(abs(_number(row, "off")) > TOLERANCE for row in rows if not row["outside"]):
        print(f"a point is off by more than {TOLERANCE:.0%}: nothing is predicted")
        return 1
    for kind, row in predict():
        print(format_row(kind, row))
    return 0
