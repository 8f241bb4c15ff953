"""Measurements of the machine: CPU and memory of a process tree, and the environment.

CPU is read from each process's own clock, in nanoseconds. Only user time, and the time
of ended children, is in ticks of 10 ms.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from bench.children import HERE, Site

SYSCTLS = (
    "net/core/somaxconn",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "fs/pipe-max-size",
    "fs/pipe-user-pages-soft",
)
LIBRARIES = ("uvloop", "Cython", "msgspec", "aiodns", "psutil")
TOOLS = ("nginx", "wrk", "siege", "cc", "openssl")


#: Exceptions when a process has just ended; OSError comes from its clock.
GONE = (psutil.NoSuchProcess, psutil.ZombieProcess, OSError)
SAMPLE_SECONDS = 0.2


@dataclass(frozen=True)
class Cpu:
    user: float
    total: float


def cpu_times(tree: Iterable[psutil.Process]) -> Cpu:
    """Return seconds of CPU of the tree, children that have ended included."""
    user = total = 0.0
    for process in tree:
        with contextlib.suppress(*GONE):
            t = process.cpu_times()
            # clock_getcpuclockid(3): of all threads, those that have ended included.
            # At 500 requests a second one tick is a tenth of the measured time.
            clock = time.clock_gettime(~process.pid << 3 | 2)
            user += t.user + t.children_user
            total += clock + t.children_user + t.children_system
    return Cpu(user, total)


def reaped_cpu() -> float:
    """Return seconds of CPU of the children that have ended, as every client has."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def busy_seconds() -> float:
    """Return the busy time of all CPUs, the time stolen by other virtual machines
    included."""
    t = psutil.cpu_times()
    return float(t.user + t.nice + t.system + t.irq + t.softirq + t.steal)


def private_bytes(tree: Iterable[psutil.Process]) -> int:
    """Return the memory that would be freed if the tree ended (USS)."""
    total = 0
    for process in tree:
        with contextlib.suppress(*GONE):
            total += process.memory_full_info().uss
    return total


def resident_kib(tree: Iterable[psutil.Process], field: str = "VmRSS") -> int:
    """Return resident memory of the tree, pages shared within it counted twice."""
    total = 0
    for process in tree:
        with contextlib.suppress(*GONE):
            for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    total += int(line.split()[1])
    return total


def count_fds(tree: Iterable[psutil.Process]) -> int:
    total = 0
    for process in tree:
        with contextlib.suppress(*GONE):
            total += process.num_fds()
    return total


class Sampler:
    """Looks at a tree every SAMPLE_SECONDS, in a thread, while the context is open.

    Averages are over time; peaks are those that a sample saw.
    """

    def __init__(self, find_tree: Callable[[], list[psutil.Process]]) -> None:
        self._find_tree = find_tree
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.samples: list[tuple[float, float, int, int]] = []  # s, CPU s, KiB, fds

    def _look(self) -> None:
        tree = self._find_tree()
        if tree:
            cpu, rss, fds = cpu_times(tree).total, resident_kib(tree), count_fds(tree)
            self.samples.append((time.monotonic(), cpu, rss, fds))

    def _run(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self._look()

    def __enter__(self) -> Sampler:
        self._look()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._look()

    def usage(self) -> dict[str, float]:
        """Return averages and peaks; nothing without a process."""
        if len(self.samples) < 2:
            return {}
        at, cpu, rss, _ = zip(*self.samples, strict=True)
        steps = [
            (cpu[i] - cpu[i - 1]) / (at[i] - at[i - 1])
            for i in range(1, len(at))
            if at[i] - at[i - 1] > SAMPLE_SECONDS / 2
        ]
        return {
            "cpu_avg_percent": 100 * (cpu[-1] - cpu[0]) / (at[-1] - at[0]),
            "cpu_peak_percent": 100 * max(steps, default=0.0),
            "rss_avg_kib": sum(rss) / len(rss),
            "rss_peak_kib": float(max(rss)),
        }

    def slope_per_minute(self, column: int) -> float:
        """Return the growth of a column (2: KiB, 3: descriptors) by least squares.

        The first third is omitted, because pools and caches fill up then, and so are
        the last two samples, because the load may have ended.
        """
        rows = self.samples[len(self.samples) // 3 : -2]
        if len(rows) < 3:
            return 0.0
        x = [row[0] - rows[0][0] for row in rows]
        return statistics.linear_regression(x, [row[column] for row in rows]).slope * 60


def tool_version(name: str) -> str:
    """Return the first line of a tool's version; empty if it is not installed."""
    flag = {"nginx": "-v", "wrk": "-v", "openssl": "version"}.get(name, "--version")
    found = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None:
        return ""
    said = subprocess.run([found, flag], capture_output=True, text=True)
    return (said.stdout + said.stderr).strip().split("\n")[0]


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=HERE.parent, capture_output=True, text=True)
    return done.stdout.strip()


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def _library(name: str) -> str:
    with contextlib.suppress(PackageNotFoundError):
        return version(name)
    return ""


def _tls_library() -> str:
    """Return name and version of the libssl of this build; empty without one."""
    code = "from cutthrough.net.tls.certificates import version; print(version())"
    return _output(sys.executable, "-c", code)


def _build_mode() -> str:
    """Return the mode whose stamp lies in build/: native, debug, …"""
    stamps = sorted((HERE.parent / "build").glob("built.*"))
    return stamps[0].suffix[1:] if stamps else ""


@functools.cache
def read_tree() -> tuple[str, bool]:
    """Return the commit, and whether the code differs from it. A run asks at its start,
    and later calls have that answer: a change during the run is none of its code."""
    changes = _output("git", "status", "--porcelain", "--untracked-files=no", "--",
                      # Results are what the code makes, and no part of it
                      ".", ":!bench/results")
    return _output("git", "rev-parse", "HEAD"), bool(changes)


def describe_environment(site: Site) -> dict[str, object]:
    """Return what a reader needs to judge or to reproduce the numbers."""
    commit, changed = read_tree()
    sysctls = {name: Path("/proc/sys", name) for name in SYSCTLS}
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "memory_mib": psutil.virtual_memory().total >> 20,
        "load_average": os.getloadavg(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "cutthrough": _output(sys.executable, "-m", "cutthrough", "version"),
        "tls": _tls_library(),
        "commit": commit,
        "build": _build_mode(),
        "network": site.name,
        "changed": changed,
        "libraries": {name: _library(name) for name in LIBRARIES},
        "tools": {name: tool_version(name) for name in TOOLS},
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "sysctls": {
            name: path.read_text().split()
            for name, path in sysctls.items()
            if path.exists()
        },
    }
