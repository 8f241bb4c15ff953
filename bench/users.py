"""Do wrong passwords slow down those who are known? `python -m bench.users`.

50 users with bcrypt hashes of cost 12, every one verified once. Then wrk with 100
connections, each request another user's, quiet and under attack in turn. The attack is
20 wrong passwords a second, each from another loopback address, so that no back-off
spares the proxy a hash: far more than two threads can compute, the queue is full.

Prints one line for each run and the ratio of the medians; exit status 1 where the p99
under attack is 1.5 times the quiet one, or a request of a known user failed.
"""

from __future__ import annotations

import argparse
import base64
import os
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import bcrypt
import psutil

from bench.children import HERE, BenchError
from bench.origin import Origin
from bench.proxies import TREE

USERS = 50
COST = 12
ATTEMPTS_PER_SECOND = 20
MOST_RATIO = 1.5
SECRET = "secret"


def credentials(name: str, secret: str) -> str:
    return base64.b64encode(f"{name}:{secret}".encode()).decode()


def write_users(path: Path) -> None:
    """The same hash for all: what is verified and remembered is name and password."""
    made = bcrypt.hashpw(SECRET.encode(), bcrypt.gensalt(COST)).decode()
    path.write_text("".join(f"user{n}:{made}\n" for n in range(USERS)))


class Proxy:
    """`cutthrough serve` with these users, in its own process group's place."""

    def __init__(self, users: Path, directory: Path, *flags: str) -> None:
        stderr = directory / "stderr"
        environ = {k: v for k, v in os.environ.items() if k[:11] != "CUTTHROUGH_"}
        with open(stderr, "wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cutthrough", "serve", "--listen",
                 "127.0.0.1:0", "--access-log", "off", "--users-file", str(users),
                 *flags], cwd=TREE, stderr=file, env=environ)
        deadline = time.monotonic() + 30
        while not (found := re.search(r" on 127\.0\.0\.1:(\d+)", stderr.read_text())):
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.close()
                raise BenchError(f"the proxy did not start: {stderr.read_text()}")
            time.sleep(0.05)
        self.port = int(found[1])

    def wait_idle(self) -> None:
        """Until what an attack left in the queue has been computed."""
        tree = psutil.Process(self.process.pid).children(recursive=True)
        busy = 1.0
        while busy > 0.05:
            before = sum(sum(one.cpu_times()[:2]) for one in tree)
            time.sleep(0.5)
            busy = (sum(sum(one.cpu_times()[:2]) for one in tree) - before) / 0.5

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def ask(port: int, url: str, word: str, source: str = "127.0.0.1") -> int:
    """The status of one request; 0 where no answer came."""
    head = (f"GET {url} HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic {word}\r\n"
            "Connection: close\r\n\r\n")
    try:
        with socket.create_connection(("127.0.0.1", port), 30, (source, 0)) as sock:
            sock.sendall(head.encode())
            return int(sock.makefile("rb").readline().split()[1])
    except (OSError, IndexError):
        return 0


def warm_up(port: int, url: str, workers: int) -> None:
    """Until each worker has answered for each user: a worker remembers its own."""
    for n in range(USERS):
        word = credentials(f"user{n}", SECRET)
        quick = 0
        while quick < 8 * workers:          # the kernel chooses which worker is asked
            began = time.monotonic()
            if ask(port, url, word) != 200:
                raise BenchError(f"user{n} does not pass")
            quick = quick + 1 if time.monotonic() - began < 0.05 else 0


class Attack:
    """Wrong passwords, at an even rate, until it is ended; counts the answers."""

    def __init__(self, port: int, url: str) -> None:
        self.port, self.url = port, url
        self.statuses: dict[int, int] = {}
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._main = threading.Thread(target=self._run)

    def __enter__(self) -> Attack:
        self._main.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._main.join()
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        turn = 0
        began = time.monotonic()
        while not self._over.wait(max(0, began + turn / ATTEMPTS_PER_SECOND
                                      - time.monotonic())):
            turn += 1
            thread = threading.Thread(target=self._try, args=(turn,))
            thread.start()
            self._threads.append(thread)

    def _try(self, turn: int) -> None:
        source = f"127.1.{turn // 250}.{turn % 250 + 1}"
        word = credentials(f"user{turn % USERS}", f"wrong-{turn}-{time.monotonic_ns()}")
        status = ask(self.port, self.url, word, source)
        self.statuses[status] = self.statuses.get(status, 0) + 1


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


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.users", description=__doc__)
    parser.add_argument("--seconds", type=int, default=5, help="of each run [5]")
    parser.add_argument("--repetitions", type=int, default=5, help="of each pair [5]")
    parser.add_argument("--workers", type=int, default=1, help="of the proxy [1]")
    parser.add_argument("--threads", type=int, default=2, help="that hash, of each [2]")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        raise BenchError("wrk not installed")
    p99: dict[str, list[float]] = {"quiet": [], "attack": []}
    errors = 0.0
    with tempfile.TemporaryDirectory(prefix="bench-users.") as name, Origin() as origin:
        directory = Path(name)
        write_users(directory / "users")
        target = f"{origin.authority}/index.html"
        proxy = Proxy(directory / "users", directory, "--workers", str(options.workers),
                      "--auth-threads", str(options.threads), "--auth-queue", "32")
        try:
            warm_up(proxy.port, f"http://{target}", options.workers)
            for _ in range(options.repetitions):
                proxy.wait_idle()
                seen = load(proxy.port, target, options.seconds)
                report("quiet", seen, p99)
                with Attack(proxy.port, f"http://{target}") as attack:
                    time.sleep(1)           # the threads are at work, the queue fills
                    during = load(proxy.port, target, options.seconds)
                report("attack", during, p99, attack.statuses)
                errors += seen["errors"] + during["errors"]
        finally:
            proxy.close()
    quiet, attack_p99 = (statistics.median(p99[kind]) for kind in ("quiet", "attack"))
    ratio = attack_p99 / quiet
    print(f"p99 quiet {quiet / 1000:.2f} ms, under attack {attack_p99 / 1000:.2f} ms: "
          f"{ratio:.2f}x; {errors:.0f} errors")
    return 0 if ratio < MOST_RATIO and not errors else 1


def report(kind: str, seen: dict[str, float], p99: dict[str, list[float]],
           statuses: dict[int, int] | None = None) -> None:
    p99[kind].append(seen["p99_us"])
    line = (f"{kind:6} {seen['requests'] / seen['seconds']:8.0f} req/s  p50 "
            f"{seen['p50_us'] / 1000:.2f}  p99 {seen['p99_us'] / 1000:.2f}  "
            f"p99.9 {seen['p999_us'] / 1000:.2f}  max {seen['max_us'] / 1000:.1f} ms")
    if statuses is not None:
        line += f"  attack answered {dict(sorted(statuses.items()))}"
    print(line, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench.users: {error}")
