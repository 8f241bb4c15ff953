"""Starts child processes that run a module of this program."""

import signal
import socket
import subprocess

from cutthrough.process.environment import SIGNALS, worker_environment


def start_program(command: tuple[str, ...], channel: socket.socket,
                  inherited: tuple[int, ...] = ()) -> "subprocess.Popen[bytes]":
    """Starts a program with its end of the channel and these descriptors. `command`:
    the number of the channel's descriptor follows. Raises OSError.

    The signals stay blocked in the child, until it ignores or handles them. systemd and
    terminals signal the whole process group, and this process may still need the child
    before it ends.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        return subprocess.Popen(
            [*command, str(channel.fileno())], stdin=subprocess.DEVNULL,
            env=worker_environment(), pass_fds=(channel.fileno(), *inherited))
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def start_helper(command: tuple[str, ...], kind: socket.SocketKind
                 ) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Starts a program that ends with this process: it gets one end of a socket pair.
    Returns the process and our end. Raises OSError."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    try:
        with theirs:
            return start_program(command, theirs), ours
    except BaseException:
        ours.close()
        raise
