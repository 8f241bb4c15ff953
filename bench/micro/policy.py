"""The cost of one decision by a policy of 100 000 hosts and 10 000 networks.

`python -m bench micro policy` reads such policies, compiles them, and asks for hosts in
random order, so that the tables are not in the cache; prints the time of reading, of
compiling, the CPU time of a decision, and what the process grew by. Each shape is
measured in a process of its own: memory that one gave back would hide what the next one
takes.
"""

from __future__ import annotations

import functools
import os
import platform
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from bench.micro import Micro, load_compiled
from cutthrough.policy.acl import Acl
from cutthrough.policy.rules import read_policy

HOSTS = 100_000
NETWORKS = 10_000
ROUNDS = 15


def make_hosts() -> list[str]:
    """Names of three labels below 977 domains, 24 to 26 characters."""
    draw = random.Random(1)
    return [f"{draw.randrange(16**6):06x}-{i}.example{i % 977}.com"
            for i in range(HOSTS)]


def make_networks() -> list[str]:
    return [f"{10 + (i >> 14)}.{i >> 6 & 255}.{(i & 63) * 4}.0/24"
            for i in range(NETWORKS)]


def one_rule(hosts: list[str], networks: list[str]) -> str:
    """One rule of all hosts, from a file, and one of all networks."""
    shown = ", ".join(f'"{network}"' for network in networks)
    return ("[lists]\nhosts = { file = 'hosts' }\n"
            "[[rules]]\naction = 'allow'\nhosts = ['@hosts']\n"
            f"[[rules]]\naction = 'allow'\naddresses = [{shown}]\n")


def many_rules(hosts: list[str], networks: list[str]) -> str:
    """A rule for each host and for each network."""
    rules = [f"[[rules]]\naction = 'allow'\nhosts = ['{host}']\n" for host in hosts]
    rules += [f"[[rules]]\naction = 'allow'\naddresses = ['{network}']\n"
              for network in networks]
    return "".join(rules)


def no_rules(hosts: list[str], networks: list[str]) -> str:
    """The empty policy, as the yardstick."""
    return "default = 'allow'\n"


SHAPES = {shape.__name__.replace("_", "-"): shape
          for shape in (no_rules, one_rule, many_rules)}


@functools.cache
def _loop() -> ModuleType:
    return load_compiled(Path(__file__).with_suffix(".pyx"))


def clock(acl: Acl, hosts: list[bytes], addresses: list[str] | None = None,
          path: bytes | None = None) -> float:
    """ns of CPU for one decision."""
    return float(_loop().clock(acl, hosts, addresses, path))


def resident_kib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024


def spread(measure: Callable[[], float]) -> str:
    times = sorted(measure() for _ in range(ROUNDS))
    return (f"ns_median={statistics.median(times):.0f} ns_min={times[0]:.0f} "
            f"ns_max={times[-1]:.0f}")


def run_shape(name: str) -> None:
    hosts, networks = make_hosts(), make_networks()
    text = SHAPES[name](hosts, networks)
    listed = "\n".join(hosts)
    before, began, cpu = resident_kib(), time.perf_counter(), time.process_time()
    policy = read_policy(text, "policy.toml", lambda file: listed)
    read, read_cpu = time.perf_counter() - began, time.process_time() - cpu
    grown = resident_kib()
    began, cpu = time.perf_counter(), time.process_time()
    acl = Acl(policy)
    print(f"policy={name} read_s={read:.2f} read_cpu_s={read_cpu:.2f} "
          f"compile_s={time.perf_counter() - began:.2f} "
          f"compile_cpu_s={time.process_time() - cpu:.2f} "
          f"rss_read_kib={grown - before} rss_compile_kib={resident_kib() - grown} "
          f"tables_kib={sum(acl.sizes().values()) // 1024}")

    draw = random.Random(2)
    # Shuffled first, so that the questions themselves lie in memory one after another.
    draw.shuffle(hosts)
    asked = [host.encode() for host in hosts]
    missed = [b"x" + host for host in asked]
    inside = [f"{draw.choice(networks).removesuffix('0/24')}7" for _ in asked]
    outside = [f"{draw.randrange(1, 9)}.1.1.1" for _ in asked]
    for what, measure in {
        "host_hit": lambda: clock(acl, asked),
        "host_hit_address_known": lambda: clock(acl, asked, outside),
        "host_miss": lambda: clock(acl, missed),
        "network_hit": lambda: clock(acl, missed, inside),
        "all_miss": lambda: clock(acl, missed, outside),
    }.items():
        print(f"policy={name} decision={what} {spread(measure)}")


@functools.cache
def _clock(miss: bool) -> Callable[[], float]:
    """ns of CPU for one decision of the rule of all hosts and that of all networks."""
    hosts, networks = make_hosts(), make_networks()
    listed = "\n".join(hosts)
    acl = Acl(read_policy(one_rule(hosts, networks), "policy.toml", lambda _: listed))
    random.Random(2).shuffle(hosts)
    asked = [(b"x" if miss else b"") + host.encode() for host in hosts]
    return lambda: clock(acl, asked)


def _decide(miss: bool) -> Callable[[int], float]:
    return lambda n: _clock(miss)() * n / 1e9


#: 100 globs in the order in which a rule names them, and no match
GLOBS = [f"/api/v{n}/users/*/keys/**" for n in range(100)]
#: The glob and the path that go back to a star most often.
WORST_GLOB, WORST = "/" + "*" + "a" * 250 + "b", b"/" + b"a" * 4000
PATH = b"/api/v2/users/3f1c9a/settings?lang=en"
ENCODED = b"/%61pi/v2/users/3f%3A1c;v=1/settings?lang=en"


def _path(globs: list[str], path: bytes) -> Callable[[int], float]:
    @functools.cache
    def acl() -> Acl:
        listed = ", ".join(f'"{glob}"' for glob in globs)
        paths = f"paths = [{listed}]\n" if globs else ""
        return Acl(read_policy(
            f'[[rules]]\naction = "allow"\nhosts = ["a.test"]\n{paths}', "policy.toml",
            lambda _: ""))

    def run(n: int) -> float:
        return clock(acl(), [b"a.test"] * 100, path=path) * n / 1e9

    return run


BENCHES = [
    Micro("acl-path-none", "a GET, and a rule without paths", _path([], PATH)),
    Micro("acl-path", "the same with one path", _path(GLOBS[:1], PATH)),
    Micro("acl-path-100", "the same with 100 paths", _path(GLOBS, PATH)),
    Micro("acl-path-encoded", "one path, four readings", _path(GLOBS[:1], ENCODED)),
    Micro("acl-path-worst", "a path of 4000 bytes that goes back to a star each time",
          _path([WORST_GLOB], WORST)),
    Micro("acl-host-hit", "a decision among 100 000 hosts", _decide(False)),
    Micro("acl-host-miss", "the same for a host that none names", _decide(True)),
]


def run_shapes() -> int:
    """Measure every shape, each in a process of its own."""
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"],
                            capture_output=True, text=True, check=False).stdout.strip()
    print(f"machine={platform.machine()} cpus={os.cpu_count()} "
          f"kernel={platform.release()} python={platform.python_version()} "
          f"commit={commit} load={os.getloadavg()[0]:.1f}", flush=True)
    for name in SHAPES:
        subprocess.run([sys.executable, "-m", "bench.micro.policy", name], check=True)
    return 0


if __name__ == "__main__":
    run_shape(sys.argv[1])
