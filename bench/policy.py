"""What does a large policy cost each plain request? `python -m bench.policy`.

Two proxies, one with a policy without rules, one with 100 000 host names and 10 000
networks in two rules that do not match and a third that does; wrk with 50 connections
to each in turn. CPU time of the proxy's processes for each request, medians, the ratio.
Exit status 1 where it is above 1.05, or a request failed.
"""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

from bench.children import HERE, BenchError
from bench.origin import Origin
from bench.proxies import TREE

HOSTS, NETWORKS = 100_000, 10_000
MOST_RATIO = 1.05
WORD = "YmVuY2g6YmVuY2g="              # bench:bench


def write_policy(directory: Path) -> Path:
    names = (f"*.site-{n}.example.net" if n % 2 else f"www.site-{n}.example.org"
             for n in range(HOSTS))
    (directory / "hosts.txt").write_text("\n".join(names))
    networks = (f"10.{n >> 8}.{n & 255}.0/24" for n in range(NETWORKS))
    (directory / "networks.txt").write_text("\n".join(networks))
    path = directory / "large.toml"
    path.write_text("""
        [lists]
        hosts = { file = "hosts.txt" }
        networks = { file = "networks.txt" }
        [[rules]]
        action = "deny"
        hosts = ["@hosts"]
        [[rules]]
        action = "deny"
        addresses = ["@networks"]
        [[rules]]
        action = "allow"
        addresses = ["127.0.0.0/8"]
    """)
    return path


class Proxy:
    """`cutthrough serve` with one worker and this policy."""

    def __init__(self, name: str, policy: Path, directory: Path) -> None:
        self.name = name
        self.costs: list[float] = []
        stderr = directory / f"{name}.stderr"
        environ = {k: v for k, v in os.environ.items() if k[:11] != "CUTTHROUGH_"}
        began = time.monotonic()
        with open(stderr, "wb") as file:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "cutthrough", "serve", "--listen",
                 "127.0.0.1:0", "--access-log", "off", "--workers", "1", "--user",
                 "bench", "--password", "bench", "--address-floor", "off", "--policy",
                 str(policy)], cwd=TREE, stderr=file, env=environ)
        while not (found := re.search(r" on 127\.0\.0\.1:(\d+)", stderr.read_text())):
            if self.process.poll() is not None or time.monotonic() > began + 60:
                self.close()
                raise BenchError(f"the proxy did not start: {stderr.read_text()}")
            time.sleep(0.02)  # between looks for the line that says where it listens
        self.port = int(found[1])
        self.started_s = time.monotonic() - began

    @property
    def tree(self) -> list[psutil.Process]:
        supervisor = psutil.Process(self.process.pid)
        return [supervisor, *supervisor.children(recursive=True)]

    def cpu(self) -> float:
        return sum(sum(one.cpu_times()[:2]) for one in self.tree)

    def rss(self) -> float:
        return max(one.memory_info().rss for one in self.tree[1:]) / (1 << 20)

    def load(self, target: str, seconds: int) -> int:
        """Returns how many requests failed."""
        before = self.cpu()
        said = subprocess.run(
            ["wrk", "-t1", "-c50", f"-d{seconds}s", "-s", str(HERE / "users.lua"),
             f"http://127.0.0.1:{self.port}", "--", target, WORD],
            capture_output=True, text=True, check=True).stdout
        found = re.search(r"^requests=.*$", said, re.MULTILINE)
        if found is None:
            raise BenchError(f"wrk said: {said}")
        seen = dict(pair.split("=") for pair in found[0].split())
        self.costs.append((self.cpu() - before) / float(seen["requests"]) * 1e6)
        return int(float(seen["errors"]))

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.policy", description=__doc__)
    parser.add_argument("--seconds", type=int, default=3, help="of each run [3]")
    parser.add_argument("--repetitions", type=int, default=7, help="of each pair [7]")
    options = parser.parse_args()
    errors = 0
    with tempfile.TemporaryDirectory(prefix="bench.") as name, Origin() as origin:
        directory = Path(name)
        (directory / "empty.toml").write_text('default = "allow"\n')
        proxies: list[Proxy] = []
        try:
            proxies.append(Proxy("empty", directory / "empty.toml", directory))
            proxies.append(Proxy("large", write_policy(directory), directory))
            target = f"{origin.authority}/index.html"
            for turn in range(options.repetitions):
                for proxy in proxies[:: 1 if turn % 2 else -1]:
                    errors += proxy.load(target, options.seconds)
            medians = [statistics.median(proxy.costs) for proxy in proxies]
            for proxy, median in zip(proxies, medians, strict=True):
                print(f"policy={proxy.name} cpu_us_per_request={median:.2f} "
                      f"low={min(proxy.costs):.2f} high={max(proxy.costs):.2f} "
                      f"start_s={proxy.started_s:.2f} worker_rss_mib={proxy.rss():.1f}")
        finally:
            for proxy in proxies:
                proxy.close()
    ratio = medians[1] / medians[0]
    print(f"ratio={ratio:.3f} errors={errors}")
    return 0 if ratio <= MOST_RATIO and not errors else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BenchError as error:
        sys.exit(f"bench.policy: {error}")
