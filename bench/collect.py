"""What the machine says: CPU and memory of a process tree, and the environment.

CPU times come from the kernel in ticks of 10 ms, so a run should burn a second at
least before its cost per request is read to the percent.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from bench.origin import HERE
from bench.scenarios import tool_version

SYSCTLS = (
    "net/core/somaxconn",
    "net/ipv4/ip_local_port_range",
    "net/ipv4/tcp_tw_reuse",
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "fs/pipe-max-size",
    "fs/pipe-user-pages-soft",
)
LIBRARIES = ("uvloop", "Cython", "msgspec", "aiodns", "psutil")
TOOLS = ("nginx", "wrk", "siege", "squid", "cc")


def cpu_seconds(tree: Iterable[psutil.Process]) -> float:
    """Return user and system time of the tree, children that have ended included."""
    total = 0.0
    for process in tree:
        t = process.cpu_times()
        total += t.user + t.system + t.children_user + t.children_system
    return total


def private_bytes(tree: Iterable[psutil.Process]) -> int:
    """Return the memory that would be freed if the tree ended (USS)."""
    return sum(process.memory_full_info().uss for process in tree)


def resident_kib(tree: Iterable[psutil.Process], field: str = "VmRSS") -> int:
    """Return resident memory of the tree, pages shared within it counted twice."""
    total = 0
    for process in tree:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                total += int(line.split()[1])
    return total


def _output(*command: str) -> str:
    done = subprocess.run(command, cwd=HERE, capture_output=True, text=True)
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


def describe_environment() -> dict[str, object]:
    """Return what a reader needs to judge the numbers, or to make them again."""
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
        "commit": _output("git", "rev-parse", "HEAD"),
        "changed": bool(_output("git", "status", "--porcelain", "--", "..")),
        "libraries": {name: _library(name) for name in LIBRARIES},
        "tools": {name: tool_version(name) for name in TOOLS},
        "nofile": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "sysctls": {
            name: path.read_text().split()
            for name, path in sysctls.items()
            if path.exists()
        },
    }
