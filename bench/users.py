"""Do wrong passwords slow down cached users? `python -m bench users`.

50 users have bcrypt hashes of cost 12, and each is verified once. Then wrk runs with
100 connections, each request from another user, alternately quiet and under attack. The
attack is 20 wrong passwords a second, each from another loopback address, so that no
back-off saves a hash. That is far more than can be computed, so the queue is full.
Meanwhile one user a second logs in for the first time, alternately from a known and
from an unknown network, and tries again if it gets a 503.

Prints one line for each run and the ratio of the medians; exit status 1 if the p99
under attack is 1.5 times the quiet one, or if a request of a cached user failed.

`--spread`: each wrong password comes from another /24. `--control` measures the
machine's part: instead of the attack, unrelated programs compute hashes, at
`--priority` and without the helpers' rests, while wrk runs through the proxy and
directly.
"""

from __future__ import annotations

import abc
import argparse
import base64
import itertools
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import bcrypt

from bench.children import HERE, BenchError, Site
from bench.collect import cpu_times
from bench.origin import Origin
from bench.proxies import start_cutthrough
from bench.running import Running, Target

USERS = 50
COST = 12
ATTEMPTS_PER_SECOND = 20
MOST_RATIO = 1.5
SECRET = "secret"
LOGINS = 1000                           # that a run of this may see


def credentials(name: str, secret: str) -> str:
    return base64.b64encode(f"{name}:{secret}".encode()).decode()


def write_users(path: Path) -> None:
    """Write one hash for all users: name and password are verified and cached."""
    made = bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(COST)).decode()
    names = [f"user{n}" for n in range(USERS)] + [f"new{n}" for n in range(LOGINS)]
    path.write_text("".join(f"{name}:{made}\n" for name in names))


def wait_idle(proxy: Running) -> None:
    """Wait until the hashes that an attack left in the queue are computed."""
    busy = 1.0
    while busy > 0.05:
        before = cpu_times(proxy.tree()).total
        time.sleep(0.5)  # the span over which CPU is taken
        busy = (cpu_times(proxy.tree()).total - before) / 0.5


def ask(port: int, url: str, word: str, source: str = "127.0.0.1") -> int:
    """Return the status of one request; 0 if there was no answer."""
    head = (f"GET {url} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {word}\r\n"
            "Connection: close\r\n\r\n")
    try:
        with socket.create_connection(("127.0.0.1", port), 30, (source, 0)) as sock:
            sock.sendall(head.encode())
            return int(sock.makefile("rb").readline().split()[1])
    except (OSError, IndexError):
        return 0


def warm_up(port: int, url: str, workers: int) -> None:
    """Repeat until each worker has answered for each user, as each has its cache."""
    for n in range(USERS):
        word = credentials(f"user{n}", SECRET)
        quick = 0
        while quick < 8 * workers:          # the kernel chooses which worker is asked
            began = time.monotonic()
            if ask(port, url, word) != 200:
                raise BenchError(f"user{n} does not pass")
            quick = quick + 1 if time.monotonic() - began < 0.05 else 0


class Beside(abc.ABC):
    """Another client, in threads, while it is entered."""

    def __init__(self, port: int, url: str) -> None:
        self.port, self.url = port, url
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._start(self._run)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:    # the first one adds no more once it ended
            thread.join()

    def _start(self, target: Callable[..., None], *args: object) -> None:
        self._threads.append(threading.Thread(target=target, args=args))
        self._threads[-1].start()

    @abc.abstractmethod
    def _run(self) -> None:
        """Runs until `_over`."""


class Attack(Beside):
    """Sends wrong passwords at an even rate until ended; counts the answers."""

    def __init__(self, port: int, url: str, spread: bool = False) -> None:
        self.spread = spread
        self.statuses: dict[int, int] = {}
        super().__init__(port, url)

    def _run(self) -> None:
        turn = 0
        began = time.monotonic()
        while not self._over.wait(max(0, began + turn / ATTEMPTS_PER_SECOND
                                      - time.monotonic())):
            turn += 1
            self._start(self._try, turn)

    def _try(self, turn: int) -> None:
        high, low = divmod(turn, 250)
        source = f"127.1.{high}.{low + 1}"
        if self.spread:
            source = f"127.{64 + high}.{low}.1"
        word = credentials(f"user{turn % USERS}", f"wrong-{turn}-{time.monotonic_ns()}")
        status = ask(self.port, self.url, word, source)
        self.statuses[status] = self.statuses.get(status, 0) + 1


class Logins(Beside):
    """Logs in another user every second; records the time by network.

    After a 503 it tries again a second later, as Retry-After says.
    """

    names = itertools.count()

    def __init__(self, port: int, url: str) -> None:
        self.seconds: dict[str, list[float]] = {"known": [], "new": []}
        self.failed: list[int] = []
        super().__init__(port, url)

    def _run(self) -> None:
        while not self._over.wait(1):
            self._start(self._log_in, next(self.names))

    def _log_in(self, n: int) -> None:
        network, source = (("known", f"127.0.0.{n % 250 + 2}") if n % 2 else
                           ("new", f"127.{2 + n // 250}.{n % 250}.1"))
        began = time.monotonic()
        while (status := ask(self.port, self.url, credentials(f"new{n}", SECRET),
                             source)) == 503 and not self._over.wait(1):
            pass
        if status == 200:
            self.seconds[network].append(time.monotonic() - began)
        else:
            self.failed.append(status)


# Computes hashes as a helper does, without end, at the given priority.
BUSY = """
import bcrypt, os, sys
made = bcrypt.hashpw(b"x", bcrypt.gensalt(12))
if sys.argv[1] == "idle":
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
else:
    os.nice(int(sys.argv[1]))
while True:
    bcrypt.checkpw(b"y", made)
"""


class Busy:
    """Runs `count` programs that compute hashes, at a niceness or `idle`."""

    def __init__(self, count: int, priority: str) -> None:
        self.command = [sys.executable, "-c", BUSY, priority]
        self.count = count
        self.processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Busy:
        self.processes = [subprocess.Popen(self.command) for _ in range(self.count)]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


def load(port: int, target: str, seconds: int) -> dict[str, float]:
    words = ",".join(
        credentials(f"user{n}", SECRET) for n in range(USERS))
    said = subprocess.run(
        ["wrk", "-t1", "-c100", f"-d{seconds}s", "--timeout", "10s", "-s",
         str(HERE / "users.lua"), f"http://127.0.0.1:{port}", "--", target, words],
        capture_output=True, text=True, check=True).stdout
    found = re.search(r"^requests=.*$", said, re.MULTILINE)
    if found is None:
        raise BenchError(f"wrk said: {said}")
    return {key: float(value) for key, value in
            (pair.split("=") for pair in found[0].split())}


class Figures:
    """The p99s of one comparison, quiet and under attack."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.p99: dict[str, list[float]] = {"quiet": [], "attack": []}
        self.errors = 0.0

    def add(self, kind: str, seen: dict[str, float], more: str = "") -> None:
        self.p99[kind].append(seen["p99_us"])
        self.errors += seen["errors"]
        print(f"{self.title:6} {kind:6} {seen['requests'] / seen['seconds']:8.0f} req/s"
              f"  p50 {seen['p50_us'] / 1000:.2f}  p99 {seen['p99_us'] / 1000:.2f}  "
              f"p99.9 {seen['p999_us'] / 1000:.2f}  max {seen['max_us'] / 1000:.1f} ms"
              f"{more}", flush=True)

    def sum_up(self) -> float:
        """Prints and returns the ratio of the medians."""
        told = {kind: f"{statistics.median(all_of) / 1000:.2f} ms "
                      f"({min(all_of) / 1000:.2f}-{max(all_of) / 1000:.2f})"
                for kind, all_of in self.p99.items()}
        ratio = (statistics.median(self.p99["attack"])
                 / statistics.median(self.p99["quiet"]))
        print(f"{self.title}: p99 quiet {told['quiet']}, under attack "
              f"{told['attack']}: {ratio:.2f}x; {self.errors:.0f} errors")
        return ratio


def attack(proxy: Running, target: str, options: argparse.Namespace) -> int:
    """Runs the comparison; returns the exit status."""
    figures = Figures("proxy")
    logins: dict[str, list[float]] = {"known": [], "new": []}
    failed: list[int] = []
    url = f"http://{target}"
    for _ in range(options.repetitions):
        wait_idle(proxy)
        figures.add("quiet", load(proxy.port, target, options.seconds))
        with Attack(proxy.port, url, options.spread) as guesses:
            time.sleep(1)               # the helpers are at work, the queue fills
            with Logins(proxy.port, url) as first:
                during = load(proxy.port, target, options.seconds)
        answers = dict(sorted(guesses.statuses.items()))
        figures.add("attack", during, f"  attack answered {answers}")
        for network, seconds in first.seconds.items():
            logins[network] += seconds
        failed += first.failed
    for network, seconds in logins.items():
        if seconds:
            print(f"first login, {network} network: median "
                  f"{statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s, "
                  f"of {len(seconds)}")
    if failed:
        print(f"refused first logins: {len(failed)}, {sorted(set(failed))}")
    return 0 if figures.sum_up() < MOST_RATIO and not figures.errors else 1


def control(proxy: Running, target: str, options: argparse.Namespace) -> int:
    """Measures the machine's part, without an attack."""
    origin = int(target.partition("/")[0].rpartition(":")[2])
    figures = {"direct": Figures("direct"), "proxy": Figures("proxy")}
    for _ in range(options.repetitions):
        for title, port in (("direct", origin), ("proxy", proxy.port)):
            figures[title].add("quiet", load(port, target, options.seconds))
            with Busy(options.threads * options.workers, options.priority):
                time.sleep(1)  # as long as an attack has before its figures
                figures[title].add("attack", load(port, target, options.seconds))
    for each in figures.values():
        each.sum_up()
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seconds", type=int, default=5, help="length of a run [5]")
    parser.add_argument("--repetitions", type=int, default=5,
                        help="runs of each proxy [5]")
    parser.add_argument("--workers", type=int, default=1,
                        help="workers of the proxy [1]")
    parser.add_argument("--threads", type=int, default=1,
                        help="concurrent hashes per worker [1, the default]")
    parser.add_argument("--spread", action="store_true",
                        help="send each wrong password from another network")
    parser.add_argument("--control", action="store_true",
                        help="compute the hashes outside the proxy instead")
    parser.add_argument("--priority", default="5",
                        help="priority of --control: idle, or a niceness [5]")


def run_users(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="bench-users.") as name, Origin() as origin:
        users = Path(name) / "users"
        write_users(users)
        target = f"{origin.authority}/index.html"
        # Longer than all runs, so that cached users stay cached
        proxy = start_cutthrough(
            "--access-log", "off", "--users-file", str(users), "--auth-cache-ttl", "1h",
            "--workers", str(options.workers), "--auth-threads", str(options.threads),
            "--auth-queue", "32",
        )(Target(Site(), origin.authority))  # fmt: skip
        try:
            warm_up(proxy.port, f"http://{target}", options.workers)
            return (control if options.control else attack)(proxy, target, options)
        finally:
            proxy.close()
