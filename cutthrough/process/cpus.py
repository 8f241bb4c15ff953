"""Which CPUs there are for workers, and which one a worker keeps to.

The supervisor is never pinned: a worker that follows another, and a program that
succeeds this one, begin with every CPU that we were given, and choose from these anew.
"""

import logging
import os
from pathlib import Path

from cutthrough.config.config import Config, ConfigError
from cutthrough.config.values import parse_cpus, show_cpus

SYS = Path("/sys/devices/system/cpu")


def usable() -> tuple[int, ...]:
    """The CPUs that this process may run on."""
    return tuple(sorted(os.sched_getaffinity(0)))


def count_workers(config: Config) -> int:
    """How many workers there are to be: `workers`, auto resolved."""
    if config.workers:
        return config.workers
    return len(config.pin if isinstance(config.pin, tuple) else usable())


def chosen(config: Config) -> tuple[int, ...]:
    """The CPUs of the slots in turn; () where nobody is pinned. Raises ConfigError."""
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
    """In such an order that two threads of one core come as late as possible."""
    seen: dict[str, int] = {}
    turns = {}
    for cpu in cpus:
        core = siblings(cpu)
        turns[cpu] = seen[core] = seen.get(core, -1) + 1
    return tuple(sorted(cpus, key=lambda cpu: (turns[cpu], cpu)))


def siblings(cpu: int) -> str:
    """The threads of this CPU's core, as the kernel lists them."""
    try:
        return (SYS / f"cpu{cpu}/topology/thread_siblings_list").read_text().strip()
    except OSError:
        return str(cpu)


def cpu_of(config: Config, slot: int) -> int | None:
    """The CPU that the worker of this slot keeps to. Raises ConfigError."""
    cpus = chosen(config)
    return cpus[slot % len(cpus)] if cpus else None


def pin(config: Config, slot: int) -> None:
    """Keeps the calling thread, and those that it will start, to the slot's CPU.

    Called by a worker before it has threads. Where the CPU went away meanwhile the
    worker serves all the same, and says so.
    """
    try:
        cpu = cpu_of(config, slot)
        if cpu is not None:
            os.sched_setaffinity(0, {cpu})
    except (ConfigError, OSError) as error:
        logging.warning("the worker is not pinned to a CPU: %s", error)


def show_pinning(config: Config) -> str:
    """For the banner: "" where nobody is pinned. The configuration is one in force."""
    cpus = chosen(config)[:count_workers(config)]
    if not cpus:
        return ""
    return f", pinned to CPU{'s' if len(cpus) > 1 else ''} {show_cpus(sorted(cpus))}"


def online() -> tuple[int, ...]:
    """The CPUs of the host that are online."""
    try:
        return parse_cpus((SYS / "online").read_text().strip())
    except (OSError, ValueError):
        return tuple(range(os.cpu_count() or 1))
