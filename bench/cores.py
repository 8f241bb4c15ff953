"""Which core runs what, where the scheduler's choice would be measured instead; and how
much of one a process may have.

One request at a time is a chain of wake-ups, and what each costs depends on where the
woken one sleeps: 10 µs on the waker's core, 20 on another that has gone to rest. The
scheduler may choose either, for as long as a run lasts. Placed, all proxies pay alike.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import psutil

USABLE = sorted(os.sched_getaffinity(0))
#: What a worker may have of a core, so that two of them and a client and an origin find
#: room on two cores; in short periods, for the connections wait meanwhile.
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
    """Keep them there, and whatever is started meanwhile beside the origin."""
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
    """Why processes cannot be held to a part of a core here, or nothing."""
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
    """Let each process have SHARE of a core, while the context is open."""
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
