"""Places processes on cores, so that no scheduler's choice is measured, and limits them
to a part of a core.

One request at a time is a chain of wake-ups, and the cost of each depends on the place
of the woken process: 10 µs on the waker's core, 20 on another core that is idle. The
scheduler may choose either for a whole run. With fixed places all proxies pay alike.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

USABLE = sorted(os.sched_getaffinity(0))
#: A worker's part of a core, so that two workers, a client and an origin fit on two
#: cores; in short periods, because connections wait meanwhile.
SHARE, PERIOD_US = 0.2, 20_000
CPU_GROUPS = Path("/sys/fs/cgroup/cpu")
#: Cores of the client and the origin, and of the proxy.
PLACES = {
    "": (USABLE, USABLE),
    "one": (USABLE[:1], USABLE[:1]),
    "apart": (USABLE[:1], USABLE[-1:]),
}


def _place(tree: list[psutil.Process], cores: list[int]) -> None:
    for process in tree:
        for thread in process.threads():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread.id, cores)


@contextlib.contextmanager
def placed(
    place: str, proxy: list[psutil.Process], origin: list[psutil.Process]
) -> Iterator[None]:
    """Pin the processes, and put those started meanwhile beside the origin."""
    near, far = PLACES[place]
    if place:
        _place(proxy, far)
        _place(origin, near)
        os.sched_setaffinity(0, near)
    try:
        yield
    finally:
        if place:
            os.sched_setaffinity(0, USABLE)
            _place(origin, USABLE)


def cannot_hold_back() -> str:
    """Return the reason if processes cannot be limited here, or nothing."""
    probe = CPU_GROUPS / f"bench-probe-{os.getpid()}"
    try:
        probe.mkdir()
        quota = (probe / "cpu.cfs_quota_us").exists()
        probe.rmdir()
    except OSError as error:
        return f"no cgroup of CPU may be made: {error.strerror}"
    return "" if quota else "cgroups of CPU have no quota here"


@contextlib.contextmanager
def held_back(pids: list[int]) -> Iterator[None]:
    """Limit each process to SHARE of a core while the context is open."""
    groups = [CPU_GROUPS / f"bench-{pid}" for pid in pids]
    try:
        for pid, group in zip(pids, groups, strict=True):
            group.mkdir()
            (group / "cpu.cfs_period_us").write_text(f"{PERIOD_US}")
            (group / "cpu.cfs_quota_us").write_text(f"{PERIOD_US * SHARE:.0f}")
            (group / "cgroup.procs").write_text(f"{pid}")
        yield
    finally:
        for pid, group in zip(pids, groups, strict=True):
            with contextlib.suppress(OSError):  # it has ended
                (CPU_GROUPS / "cgroup.procs").write_text(f"{pid}")
            with contextlib.suppress(OSError):
                group.rmdir()
