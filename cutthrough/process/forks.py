"""Forks of a worker, which an operator's code makes (os.fork, and multiprocessing by
default up to Python 3.13): a fork is no worker.

With the worker's sockets it would keep every connection open behind the worker's close,
and the addresses in use; and its signals would come to the worker's loop, by the pipe
that both have.
"""

import contextlib
import os
import signal
import socket
import stat

# A worker has handlers for them, or ignores them
_HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP,
            signal.SIGUSR1, signal.SIGUSR2)


def keep_apart() -> None:
    """From now on a fork of this process has none of its sockets and signal handlers.
    What is executed (subprocess) has none anyway."""
    os.register_at_fork(after_in_child=_become_another)


def _become_another() -> None:
    with contextlib.suppress(ValueError):        # not of the main thread
        signal.set_wakeup_fd(-1)
        for number in _HANDLED:
            signal.signal(number, signal.SIG_DFL)
    standard = {_inode(fd) for fd in (0, 1, 2)}
    # The numbers stay taken, because the worker's objects would close them once more
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for fd in map(int, os.listdir("/proc/self/fd")):
        if _inode(fd) not in standard and _has_peers(fd):
            os.dup2(nothing, fd, inheritable=False)
    os.close(nothing)


def _inode(fd: int) -> int:
    try:
        return os.fstat(fd).st_ino
    except OSError:                              # it is closed
        return -1


def _has_peers(fd: int) -> bool:
    """Whether it is a socket of more than a pair, which two processes may share."""
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
        sock = socket.socket(fileno=fd)
    except OSError:
        return False
    try:
        return (sock.family != socket.AF_UNIX or sock.type != socket.SOCK_STREAM
                or bool(sock.getsockname()) or bool(sock.getpeername()))
    except OSError:                              # it has no peer yet
        return True
    finally:
        sock.detach()
