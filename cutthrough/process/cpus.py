"""The CPUs that workers may use, and the CPU that each worker is pinned to.

The supervisor is never pinned. So a replacement worker, and the new program of an
upgrade, start with all CPUs of this process and select from them again.
"""

import logging
import math
import os
from pathlib import Path, PurePosixPath

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.values import parse_cpus, show_cpus

SYS = Path("/sys/devices/system/cpu")


def usable() -> tuple[int, ...]:
    """The CPUs that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def count_workers(config: Config) -> int:
    """The configured number of workers, with `auto` resolved."""
    if config.workers:
        return config.workers
    if isinstance(config.pin, tuple):
        return len(config.pin)
    cpus, quota = len(usable()), cpu_quota()
    return cpus if quota is None else min(cpus, max(math.ceil(quota), 1))


def cgroup_folders(root: Path = Path("/")) -> list[Path]:
    """The folders of this process's cgroup and its parents; [] without cgroup v2."""
    base = root / "sys/fs/cgroup"
    return _folders(root, "", base) if (base / "cgroup.controllers").exists() else []


def _folders(root: Path, controller: str, base: Path) -> list[Path]:
    """Those of a hierarchy, the innermost first. `controller`: "" is cgroup v2's."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except (OSError, ValueError):
        return []
    rows = (line.split(":", 2) for line in lines)
    path = next((row[2] for row in rows if controller in row[1].split(",")), None)
    if path is None:
        return []
    # A cgroup outside the root of the namespace is shown with ".."
    parts = [part for part in PurePosixPath(path).parts if part not in ("/", "..")]
    return [base.joinpath(*parts[:n]) for n in range(len(parts), -1, -1)]


def cpu_quota(root: Path = Path("/")) -> float | None:
    """The number of CPUs for whose time the cgroups allow; None: all. The controller is
    in cgroup v2, or in a hierarchy of its own, as cgroup v1 has it."""
    rows = [_texts(folder / "cpu.max") for folder in cgroup_folders(root)] + [
        _texts(folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")
        for folder in _folders(root, "cpu", root / "sys/fs/cgroup/cpu")]
    # Without a limit the first word is "max", and -1 in cgroup v1
    return min((int(row[0]) / int(row[1]) for row in rows
                if len(row) == 2 and row[0].isdigit()), default=None)


def _texts(*paths: Path) -> list[str]:
    """The words of these files; []: one of them is not there."""
    try:
        return " ".join(path.read_text() for path in paths).split()
    except (OSError, ValueError):
        return []


def pinned_cpus(config: Config) -> tuple[int, ...]:
    """The CPUs of the slots, in order; () if workers are not pinned. Raises
    ConfigError."""
    if config.pin == "off":
        return ()
    ours = usable()
    if not isinstance(config.pin, tuple):
        return cores_first(ours)
    for cpu in config.pin:
        if cpu not in ours:
            there = (SYS / f"cpu{cpu}").exists()
            raise ConfigError("", "pin", (
                f"CPU {cpu} is not available to this process, which may use "
                f"{show_cpus(ours)}") if there else f"this host has no CPU {cpu}")
    return config.pin


def cores_first(cpus: tuple[int, ...]) -> tuple[int, ...]:
    """Orders the CPUs so that second threads of a core come as late as possible."""
    last_turns: dict[str, int] = {}
    turns = {}
    for cpu in cpus:
        core = siblings(cpu)
        turns[cpu] = last_turns[core] = last_turns.get(core, -1) + 1
    return tuple(sorted(cpus, key=lambda cpu: (turns[cpu], cpu)))


def siblings(cpu: int) -> str:
    """The threads of this CPU's core, as the kernel lists them."""
    try:
        return (SYS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def cpu_of(config: Config, slot: int) -> int | None:
    """The CPU that this slot's worker is pinned to, or None. Raises ConfigError."""
    cpus = pinned_cpus(config)
    return cpus[slot % len(cpus)] if cpus else None


def pin(config: Config, slot: int) -> None:
    """Pins the calling thread, and threads that it starts later, to the slot's CPU.

    A worker calls this before it has threads. If the CPU is gone meanwhile, the worker
    logs that and serves unpinned.
    """
    try:
        cpu = cpu_of(config, slot)
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
    except (ConfigError, OSError) as error:
        logging.warning("the worker is not pinned to a CPU: %s", error)


def show_pinning(config: Config) -> str:
    """The banner's words on pinning; "": not pinned. `config` has been validated."""
    cpus = pinned_cpus(config)[:count_workers(config)]
    if not cpus:
        return ""
    return f", pinned to CPU{'s' if len(cpus) > 1 else ''} {show_cpus(sorted(cpus))}"


def online() -> tuple[int, ...]:
    """The CPUs of the host that are online."""
    try:
        return parse_cpus((SYS / "online").read_text().strip())
    except (OSError, ValueError):
        return tuple(range(os.cpu_count() or 1))
