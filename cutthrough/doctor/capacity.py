"""The host's capacity: descriptors, CPUs, memory, processes; a container's limits.

A cgroup's limit is the least of its own and those of its parents. If a container has a
cgroup namespace, as is usual, only its own limit is visible.
"""

import math
import resource
from collections.abc import Iterator
from pathlib import Path

from cutthrough.config.config import ConfigError
from cutthrough.config.values import show_cpus, show_size
from cutthrough.doctor.finding import Case, Finding, Host
from cutthrough.doctor.sysctls import NOFILE
from cutthrough.generation.effective import show_slots
from cutthrough.process.cpus import (
    cgroup_folders,
    cpu_quota,
    online,
    pinned_cpus,
    usable,
)
from cutthrough.process.descriptors import RESERVED_FDS
from cutthrough.storage.settings import settings_of

MIB = 1 << 20
# Resident, measured on x86-64 with Python 3.11: worker 34 MiB, supervisor 27 MiB
PROCESS_BYTES = 36 * MIB
# A tunnel at rest: 0.7 KiB in the worker (README), and in the kernel 3.7 KiB for each
# socket (TCP, sock_inode_cache, filp, dentry, eventpoll_epi in /proc/slabinfo)
CONNECTION_BYTES = 9 * 1024
# Of libssl, for a client's connection over TLS: docs/decisions/0013-tls-by-libssl.md
TLS_BYTES = 14 * 1024
# The bound of a worker's buffers, which hold bytes for slow readers: net/buffers.pyx
BLOCK_BYTES = 512 * MIB
# One thread of c-ares for each of two channels, and one of the interpreter
OTHER_THREADS = 3


def check_room(case: Case) -> Iterator[Finding]:
    yield check_nofile(case)
    yield from check_cpus(case)
    yield from check_cgroup(case)


# Descriptors

def check_nofile(case: Case) -> Finding:
    """The limit of this shell; a service has its own, LimitNOFILE."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return judge_nofile(case, hard if hard != resource.RLIM_INFINITY else 1 << 62,
                        soft)


def judge_nofile(case: Case, hard: int, soft: int) -> Finding:
    most = case.config.max_connections
    room = max((hard - RESERVED_FDS) // 2, 16)
    state = f"{hard} (soft {soft}, raised): {room} connections a worker"
    advice = f"LimitNOFILE={NOFILE} in the unit, tuning/limits.conf for a login"
    if most and 2 * most + RESERVED_FDS > hard:
        return Finding("nofile", "warn", state, f"{2 * most + RESERVED_FDS} for "
                       f"max_connections = {most}", advice)
    total = case.config.max_connections_total
    if total > room * case.workers:
        return Finding("nofile", "warn", state, "max_connections_total = "
                       f"{total} over {case.workers} workers", advice)
    if hard >= NOFILE or most or total:
        return Finding("nofile", "ok", state, str(NOFILE) if not most else "")
    return Finding("nofile", "warn" if hard < 4096 else "note", state, str(NOFILE),
                   advice)


# CPUs

def check_cpus(case: Case) -> Iterator[Finding]:
    ours, there = usable(), online()
    yield Finding("affinity", "ok", f"CPUs {show_cpus(ours)} of {show_cpus(there)}")
    workers = case.workers
    if workers > len(ours):
        yield Finding("workers", "note", f"{workers} on {len(ours)} CPUs",
                      f"{len(ours)} at most", f"--workers {len(ours)}, or auto: with "
                      "more workers than CPUs they only take turns")
    else:
        yield Finding("workers", "ok", str(workers), f"{len(ours)} at most")
    if case.config.pin != "off":
        try:
            pinned_cpus(case.config)
            yield Finding("pin", "ok", show_slots(case.config))
        except ConfigError as error:
            yield Finding("pin", "fail", error.reason, "", "pin = \"auto\", or CPUs of "
                          f"{show_cpus(ours)}")
    yield from check_governor(case.host, ours)


def check_governor(host: Host, cpus: tuple[int, ...]) -> Iterator[Finding]:
    base = "sys/devices/system/cpu/cpu{}/cpufreq/scaling_{}"
    governors = {host.text(base.format(cpu, "governor")) for cpu in cpus} - {None}
    if not governors:
        return                               # a virtual machine: its host decides
    drivers = {host.text(base.format(cpu, "driver")) for cpu in cpus} - {None}
    shown = ", ".join(sorted(map(str, governors)))
    # With these drivers powersave scales with the load; with others it stays slowest
    slow = "powersave" in governors and not drivers & {"intel_pstate", "amd-pstate-epp"}
    yield Finding("CPU governor", "note" if slow else "ok", shown,
                  "schedutil or performance",
                  "cpupower frequency-set -g schedutil" if slow else "")


# A container's limits

def check_cgroup(case: Case) -> Iterator[Finding]:
    yield judge_cpu(case, cpu_quota(case.host.root))
    folders = cgroup_folders(case.host.root)
    if not folders:
        yield Finding("cgroup", "note", "no cgroup v2 here", "",
                      "of cgroup v1 only the quota of CPU time is checked")
        return
    yield judge_memory(case, least(folders, "memory.max"))
    yield judge_processes(case, least(folders, "pids.max"))


def least(folders: list[Path], name: str) -> int | None:
    """The least limit in files of this name; None: there is none."""
    texts = (Host(folder).text(name) or "" for folder in folders)
    return min((int(text) for text in texts if text.isdigit()), default=None)


def judge_cpu(case: Case, quota: float | None) -> Finding:
    if quota is None:
        return Finding("cpu.max", "ok", "no limit")
    fair = max(math.ceil(quota), 1)
    if case.workers <= fair:
        return Finding("cpu.max", "ok", f"{quota:g} CPUs", f"{case.workers} workers")
    return Finding("cpu.max", "warn", f"{quota:g} CPUs", f"{case.workers} workers",
                   f"CUTTHROUGH_WORKERS={fair}: more workers use up the quota early, "
                   "and all of them are stopped for the rest of each 100 ms")


def judge_memory(case: Case, most: int | None) -> Finding:
    if most is None:
        return Finding("memory.max", "ok", "no limit")
    config, workers = case.config, case.workers
    fixed = PROCESS_BYTES * (workers + 1) + ring_bytes(case)
    collected = workers * case.config.collected_bodies * collects(case)
    has_tls = any(listener.certificates for listener in config.all_listeners)
    each_bytes = CONNECTION_BYTES + TLS_BYTES * has_tls
    room = max(most - fixed, 0) // each_bytes
    connections = config.max_connections * workers
    if total := config.max_connections_total:
        connections = min(connections or total, total)
    state = f"{show_bytes(most)}: {room} tunnels at rest"
    each = max(room // (2 * workers), 1)
    set_it = f"max_connections = {each} leaves half of the memory for buffered bytes"
    if room == 0:
        return Finding("memory.max", "fail", state, f"{show_bytes(2 * fixed)} at least",
                       f"{workers + 1} processes of {show_bytes(PROCESS_BYTES)} do not "
                       "fit: more memory, or fewer workers")
    if connections > room:
        return Finding("memory.max", "warn", state, f"{connections} connections: "
                       f"{show_bytes(fixed + connections * each_bytes)}", set_it)
    if not connections:
        return Finding("memory.max", "note", state, "max_connections", f"{set_it}; "
                       "without it only nofile limits the kernel's memory for sockets")
    full = fixed + connections * each_bytes + workers * BLOCK_BYTES + collected
    if most >= full:
        return Finding("memory.max", "ok", state, show_bytes(full))
    bodies = "" if not collected else ", and collect " + show_bytes(
        case.config.collected_bodies) + " of bodies (collected_bodies)"
    return Finding("memory.max", "note", state, show_bytes(full),
                   f"enough at rest; each worker may buffer {show_bytes(BLOCK_BYTES)} "
                   f"more for clients that read slowly{bodies}")


def collects(case: Case) -> bool:
    """Whether rules have bodies read whole: for filters, or to match recordings."""
    return bool(case.policy.filters) or case.policy.replays


def ring_bytes(case: Case) -> int:
    """Returns the memory of captures and recordings: rings, whose pages stay, and their
    writer."""
    if settings_of(case.config, case.policy) is None:
        return 0
    # Imported here, because it is compiled, and most hosts capture nothing
    from cutthrough.tape.ring_room import size_for

    return PROCESS_BYTES + case.workers * size_for(case.workers)


def judge_processes(case: Case, most: int | None) -> Finding:
    need = 1 + case.workers * (1 + case.config.auth_threads + OTHER_THREADS)
    need += case.workers + 1                 # a reload or an upgrade doubles them
    state = "no limit" if most is None else str(most)
    if most is None or most >= need:
        return Finding("pids.max", "ok", state, f"{need}, threads included")
    return Finding("pids.max", "fail", state, f"{need}, threads included",
                   f"TasksMax={need * 2} in the unit, --pids-limit {need * 2}, or "
                   "fewer workers")


def show_bytes(size: int) -> str:
    return show_size(size // MIB * MIB) if size >= MIB else show_size(size)


