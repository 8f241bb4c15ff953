"""The kernel: its version, its features that this process may use, its settings."""

import fcntl
import os
import platform
import re
import select
import socket
from collections.abc import Callable, Iterator

import msgspec

from cutthrough.doctor.finding import Case, Finding, Host, Verdict
from cutthrough.doctor.sysctls import SYSCTLS, Sysctl, suffices, widest
from cutthrough.net import sends
from cutthrough.net.listener import BACKLOG
from cutthrough.net.tls.kernel_check import why_no_kernel_tls

# memfd's seals came with 3.17, the other features earlier; the default of 4096 for
# somaxconn came with 5.4
LEAST, GOOD = (3, 17), (5, 4)
PIPE_BYTES = 1 << 20
# The most pipes of a worker, and the least size of a pipe that it uses: net/pipes.pyx
PIPES = 512
LEAST_PIPE_BYTES = 65536
PAGE = 4096
CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 21, 24


def check_kernel(case: Case) -> Iterator[Finding]:
    yield check_version(platform.release())
    for name, attempt in (("epoll", try_epoll), ("SO_REUSEPORT", try_reuseport),
                          ("sealed memory", try_memfd)):
        yield check_feature(name, attempt)
    yield check_splice(case)
    if case.config.collect_sends:
        yield check_collected_sends()
    if case.config.tls_records == "kernel":
        yield check_kernel_tls()


def check_version(release: str) -> Finding:
    match = re.match(r"(\d+)\.(\d+)", release)
    version = (int(match[1]), int(match[2])) if match else (0, 0)
    verdict: Verdict = "ok" if version >= GOOD else "note"
    advice = ""
    if version < LEAST:
        verdict, advice = "fail", "memfd_create(2) is missing: nothing will start"
    elif verdict == "note":
        advice = "works; newer kernels have better defaults (somaxconn, tcp_tw_reuse)"
    return Finding("version", verdict, release, "5.4 or newer", advice)


def check_feature(name: str, attempt: Callable[[], None]) -> Finding:
    try:
        attempt()
    except (OSError, AttributeError) as error:
        return Finding(name, "fail", str(error), "works", "the program cannot start "
                       "without it: missing in the kernel, or denied by a seccomp "
                       "filter")
    return Finding(name, "ok", "works")


def try_epoll() -> None:
    with select.epoll() as inner, select.epoll() as outer:
        outer.register(inner, select.EPOLLIN)


def try_reuseport() -> None:
    with socket.socket() as first, socket.socket() as other:
        for sock in (first, other):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        first.bind(("127.0.0.1", 0))
        other.bind(first.getsockname())


def try_memfd() -> None:
    fd = os.memfd_create("cutthrough-doctor", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    try:
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SEAL)
    finally:
        os.close(fd)


def check_splice(case: Case) -> Finding:
    """Moves a byte from a socket into a pipe of the workers' size, and out again."""
    if not case.config.splice:
        return Finding("splice", "note", "off", "on", "splice = true: bulk data takes "
                       "a third of the CPU time")
    try:
        size = try_splice()
    except OSError as error:
        return Finding("splice", "warn", str(error), "works", "bulk data is copied")
    verdict: Verdict = "ok" if size >= PIPE_BYTES else "note"
    if size < LEAST_PIPE_BYTES:
        verdict = "warn"
    return Finding(
        "splice", verdict, f"works, pipes of {size // 1024} KiB", "1024 KiB",
        "" if verdict == "ok" else "raise fs.pipe-max-size and fs.pipe-user-pages-soft "
        "as below; below 64 KiB bulk data is copied")


def check_collected_sends() -> Finding:
    """Makes a worker's ring of io_uring, and sends by it."""
    error = sends.turn_on()
    sends.turn_off()
    if not error:
        return Finding("io_uring", "ok", "works", "works")
    return Finding(
        "io_uring", "note", os.strerror(error), "works", "each send is a system call "
        "of its own, which works too: Linux before 5.19, a seccomp filter, or "
        "kernel.io_uring_disabled")


def check_kernel_tls() -> Finding:
    reason = why_no_kernel_tls()
    return Finding(
        "kTLS", "warn" if reason else "ok", reason or "works", "works",
        "modprobe tls  # and a file in /etc/modules-load.d with its name; without it "
        'tls_records = "kernel" is as "own"' if reason else "")


def try_splice() -> int:
    """Returns the size of the pipe. Raises OSError."""
    out, into = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    ours, theirs = socket.socketpair()
    try:
        for size in (PIPE_BYTES, PIPE_BYTES // 4):
            try:
                fcntl.fcntl(into, fcntl.F_SETPIPE_SZ, size)
                break
            except OSError:
                continue
        theirs.send(b"x")
        os.splice(ours.fileno(), into, 1)
        os.splice(out, ours.fileno(), 1)
        return int(fcntl.fcntl(into, fcntl.F_GETPIPE_SZ))
    finally:
        for fd in (out, into):
            os.close(fd)
        ours.close()
        theirs.close()


# Settings

def check_sysctls(case: Case) -> Iterator[Finding]:
    for wanted in SYSCTLS:
        value = case.host.sysctl(wanted.key)
        if value is None:
            continue                         # if conntrack is not loaded
        finding = check_sysctl(wanted, value)
        if wanted.key == "net.core.somaxconn" and case.exposed and value.isdigit() and (
                int(value) * 8 < BACKLOG):   # 128, the default before 5.4
            finding = msgspec.structs.replace(finding, verdict="warn")
        yield finding
    yield from check_pipes(case)
    yield from check_file_table(case.host)
    yield from check_tcp_memory(case.host)
    yield from check_conntrack(case)
    yield check_keepalive(case)


def check_sysctl(wanted: Sysctl, value: str) -> Finding:
    if suffices(wanted, value):
        return Finding(wanted.key, "ok", value, wanted.value)
    return Finding(wanted.key, "note", value, wanted.value,
                   f"sysctl -w {wanted.key}='{widest(wanted, value)}'  # {wanted.why}")


def check_pipes(case: Case) -> Iterator[Finding]:
    """Checks the number of pipes of 1 MiB that the program's user may hold."""
    pages = case.host.number("proc/sys/fs/pipe-user-pages-soft")
    hard = case.host.number("proc/sys/fs/pipe-user-pages-hard")
    if pages is None or not case.config.splice:
        return
    bound = min((n for n in (pages, hard) if n), default=0)
    count = bound * PAGE // PIPE_BYTES
    privileged = case.host.may(CAP_SYS_ADMIN, CAP_SYS_RESOURCE)     # pipe(7)
    most = case.workers * PIPES
    state = "no limit" if not bound else f"{count} of 1 MiB"
    if bound and privileged:
        state = f"no limit for this user, {count} of 1 MiB for others"
    enough = not bound or privileged or count >= most
    yield Finding(
        "splice pipes", "ok" if enough else "note", state, f"{most}, at most",
        "" if enough else "sysctl -w fs.pipe-user-pages-soft="
        f"{max(262144, most * PIPE_BYTES // PAGE)}  # beyond {count} bulk tunnels at "
        "a time, bytes are copied")


def check_file_table(host: Host) -> Iterator[Finding]:
    text = host.text("proc/sys/fs/file-nr")
    if text is None or len(text.split()) != 3:
        return
    used, _, most = map(int, text.split())
    full = used * 10 > most * 9
    yield Finding("descriptors in use", "warn" if full else "ok", str(used),
                  f"far below {most}", f"sysctl -w fs.file-max={most * 2}  # accept(2) "
                  "is about to fail with ENFILE" if full else "")


def check_tcp_memory(host: Host) -> Iterator[Finding]:
    """Checks the memory of TCP: beyond tcp_mem's second number all windows shrink."""
    limits = host.sysctl("net.ipv4.tcp_mem")
    match = re.search(r"TCP: .*\bmem (\d+)", host.text("proc/net/sockstat") or "")
    if limits is None or match is None:
        return
    _, pressure, most = map(int, limits.split())
    used = int(match[1])
    tight = used >= pressure
    yield Finding("net.ipv4.tcp_mem", "warn" if tight else "ok",
                  f"{used} pages in use", f"below {pressure}",
                  f"sysctl -w net.ipv4.tcp_mem='{pressure} {most} {most * 2}'"
                  if tight else "")


def check_conntrack(case: Case) -> Iterator[Finding]:
    count = case.host.number("proc/sys/net/netfilter/nf_conntrack_count")
    most = case.host.number("proc/sys/net/netfilter/nf_conntrack_max")
    if count is None or not most:
        return
    full = count * 10 > most * 8
    yield Finding("conntrack table", "warn" if full else "ok", f"{count} entries",
                  f"far below {most}", "sysctl -w net.netfilter.nf_conntrack_max="
                  f"{most * 2}  # when it is full, new connections are dropped"
                  if full else "")
    key = "net.netfilter.nf_conntrack_tcp_timeout_established"
    seconds = case.host.number("proc/sys/" + key.replace(".", "/"))
    if seconds is None:
        return
    idle = case.config.idle_timeout
    short = seconds < idle
    yield Finding(
        "conntrack memory", "warn" if short else "ok", f"{seconds} s",
        f"idle_timeout, {idle:g} s, or more", f"sysctl -w {key}={int(idle) + 60}  # or "
        f"idle_timeout = \"{seconds}s\": the firewall forgets tunnels that are silent "
        "for less than idle_timeout" if short else "")


def check_keepalive(case: Case) -> Finding:
    seconds = case.host.sysctl("net.ipv4.tcp_keepalive_time")
    return Finding("net.ipv4.tcp_keepalive_time", "ok", f"{seconds} s, not used: "
                   f"idle_timeout is {case.config.idle_timeout:g} s")
