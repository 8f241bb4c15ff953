"""Starts a child process that ends with this one: it gets one end of a socket pair."""

import signal
import socket
import subprocess

from cutthrough.process.environment import SIGNALS, worker_environment


def start_helper(command: tuple[str, ...], kind: socket.SocketKind
                 ) -> tuple["subprocess.Popen[bytes]", socket.socket]:
    """Returns the process and our end. `command`: the number of its descriptor follows.
    Raises OSError.

    The signals stay blocked in the child, until it ignores or handles them. systemd and
    terminals signal the whole process group, and this process may still need the child
    before it ends.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        with theirs:
            process = subprocess.Popen(
                [*command, str(theirs.fileno())], stdin=subprocess.DEVNULL,
                env=worker_environment(), pass_fds=(theirs.fileno(),))
    except BaseException:
        ours.close()
        raise
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process, ours
