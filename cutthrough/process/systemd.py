"""systemd's protocols for services: sd_notify(3), sd_listen_fds(3).

Both take a few lines and no library: a datagram to a socket that the environment names,
and descriptors from 3 on. Without systemd both do nothing.
"""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import Callable

LISTEN_FDS_START = 3
FAMILIES = (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX)
PATIENCE_S = 0.5


def notify(*lines: str, patience: float = PATIENCE_S) -> None:
    """Sends `lines` to the service manager; its absence is not an error."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path.startswith(("/", "@")):      # vsock: in virtual machines
        return
    if path[0] == "@":
        path = "\0" + path[1:]
    with (contextlib.suppress(OSError),
          socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock):
        sock.settimeout(patience)            # it may not be reading
        sock.sendto("\n".join(lines).encode(), path)


def notify_reloading() -> None:
    """Reports that a reload begins, with its time; `READY=1` ends it."""
    notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")


def take_listeners() -> list[socket.socket]:
    """Returns the sockets that the service manager opened; the caller owns them.

    Removes the variables from the environment, so that no child uses them.
    """
    pid, count = os.environ.get("LISTEN_PID"), os.environ.get("LISTEN_FDS", "")
    for name in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(name, None)
    if pid != str(os.getpid()) or not count.isdigit():
        return []
    taken = []
    for fd in range(LISTEN_FDS_START, LISTEN_FDS_START + int(count)):
        os.set_inheritable(fd, False)
        sock = socket.socket(fileno=fd)
        if sock.family in FAMILIES and sock.type == socket.SOCK_STREAM:
            sock.setblocking(False)
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            taken.append(sock)
        else:
            sock.close()
    return taken


def watchdog_seconds() -> float:
    """Returns the interval of `WATCHDOG=1`, half of the manager's timeout; 0: there is
    no watchdog."""
    pid, micros = os.environ.get("WATCHDOG_PID"), os.environ.get("WATCHDOG_USEC", "")
    if not micros.isdigit() or pid not in (None, str(os.getpid())):
        return 0.0
    return int(micros) / 2_000_000


def feed_watchdog(is_alive: Callable[[], bool]) -> None:
    """Feeds the watchdog from the running loop while `is_alive` returns true."""
    seconds = watchdog_seconds()
    if seconds and is_alive():
        notify("WATCHDOG=1", patience=0)
        asyncio.get_running_loop().call_later(seconds, feed_watchdog, is_alive)


def successor_environment() -> dict[str, str]:
    """Returns the environment of the new program in an upgrade.

    The watchdog expects the process that WATCHDOG_PID names. If that is this process,
    the variable is removed: the new program then feeds the watchdog. With this
    process's id in it, it did not, and systemd killed it.
    """
    environ = dict(os.environ)
    if environ.get("WATCHDOG_PID") == str(os.getpid()):
        del environ["WATCHDOG_PID"]
    return environ
