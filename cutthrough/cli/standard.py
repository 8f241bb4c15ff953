"""Descriptors 0, 1 and 2, and the signal SIGCHLD, which the program does not leave as
its parent process set them."""

import io
import os
import sys


def fill_standard() -> None:
    """Opens /dev/null for each of 0, 1 and 2 if the parent process has closed it.

    Otherwise a socket or the workers' counters would get its number, and messages would
    go to them.
    """
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)
    sys.stdin = sys.stdin or open(0, closefd=False)
    sys.stdout = sys.stdout or open(1, "w", closefd=False)
    sys.stderr = sys.stderr or open(2, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):             # Latin-1 has no …
        sys.stdout.reconfigure(errors="backslashreplace")


def heed_children() -> None:
    """If the parent process ignores SIGCHLD, so would this one: the kernel then reports
    no child's end, and keeps no status of it."""
    import signal  # here: the first worker starts without it

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
