"""Measures the cost of a large policy per plain request: `python -m bench policy`.

Two proxies, one with a policy without rules, one with 100 000 host names and 10 000
networks in two rules that do not match and a third that does; wrk with 50 connections
to each in turn. CPU time of the proxy's processes for each request, medians, the ratio.
Exit status 1 if it is above 1.05, or if a request failed.
"""

import base64
import re
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from bench.children import HERE, BenchError, Site
from bench.collect import cpu_times
from bench.origin import Origin
from bench.proxies import start_cutthrough
from bench.running import PASSWORD, USER, Target

HOSTS, NETWORKS = 100_000, 10_000
MOST_RATIO = 1.05
WORD = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


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


class Measured:
    """One worker with this policy, and the cost per request of each of its loads."""

    def __init__(self, name: str, policy: Path, target: Target) -> None:
        self.name = name
        self.costs: list[float] = []
        began = time.monotonic()
        self.running = start_cutthrough(
            "--access-log", "off", "--address-floor", "off", "--policy", str(policy)
        )(target)  # fmt: skip
        self.started_s = time.monotonic() - began

    def rss_mib(self) -> float:
        return max(one.memory_info().rss for one in self.running.tree()[1:]) / (1 << 20)

    def load(self, target: str, seconds: int) -> int:
        """Returns the number of failed requests."""
        before = cpu_times(self.running.tree()).total
        said = subprocess.run(
            ["wrk", "-t1", "-c50", f"-d{seconds}s", "-s", str(HERE / "users.lua"),
             f"http://127.0.0.1:{self.running.port}", "--", target, WORD],
            capture_output=True, text=True, check=True).stdout
        found = re.search(r"^requests=.*$", said, re.MULTILINE)
        if found is None:
            raise BenchError(f"wrk said: {said}")
        seen = dict(pair.split("=") for pair in found[0].split())
        spent = cpu_times(self.running.tree()).total - before
        self.costs.append(spent / float(seen["requests"]) * 1e6)
        return int(float(seen["errors"]))


def run_policy(seconds: int, repetitions: int) -> int:
    errors = 0
    with tempfile.TemporaryDirectory(prefix="bench.") as name, Origin() as origin:
        directory = Path(name)
        directory.chmod(0o755)
        (directory / "empty.toml").write_text('default = "allow"\n')
        where = Target(Site(), origin.authority)
        proxies: list[Measured] = []
        try:
            proxies.append(Measured("empty", directory / "empty.toml", where))
            proxies.append(Measured("large", write_policy(directory), where))
            target = f"{origin.authority}/index.html"
            for turn in range(repetitions):
                for proxy in proxies[:: 1 if turn % 2 else -1]:
                    errors += proxy.load(target, seconds)
            medians = [statistics.median(proxy.costs) for proxy in proxies]
            for proxy, median in zip(proxies, medians, strict=True):
                print(f"policy={proxy.name} cpu_us_per_request={median:.2f} "
                      f"low={min(proxy.costs):.2f} high={max(proxy.costs):.2f} "
                      f"start_s={proxy.started_s:.2f} "
                      f"worker_rss_mib={proxy.rss_mib():.1f}")
        finally:
            for proxy in proxies:
                proxy.running.close()
    ratio = medians[1] / medians[0]
    print(f"ratio={ratio:.3f} errors={errors}")
    return 0 if ratio <= MOST_RATIO and not errors else 1
