"""Descriptors 0, 1 and 2, and the signal SIGCHLD, which the program does not leave as
its parent process set them."""

from __future__ import annotations

import io
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


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
    out = sys.stdout
    if isinstance(out, io.TextIOWrapper):
        raw = getattr(out.buffer, "raw", out.buffer)         # `python -u`: no buffer
        if type(raw) is io.FileIO and raw.fileno() == 1:
            named = Output(1, "w", closefd=False)
            sys.stdout = out = io.TextIOWrapper(
                named if raw is out.buffer else io.BufferedWriter(named),
                out.encoding, line_buffering=out.line_buffering,
                write_through=out.write_through)
        out.reconfigure(errors="backslashreplace")           # Latin-1 has no …


class Output(io.FileIO):
    """Standard output. The error of a write names it, as that of a file names the file:
    a verb that reads files and prints must not mistake one for the other."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "standard output"
            raise


def heed_children() -> None:
    """If the parent process ignores SIGCHLD, so would this one: the kernel then reports
    no child's end, and keeps no status of it."""
    import signal  # here: the first worker starts without it

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
