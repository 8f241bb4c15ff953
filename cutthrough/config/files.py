"""Reads the files that a configuration names, so that none of them blocks for ever.

open(2) of a FIFO without a writer waits, and read(2) of a terminal or of /dev/zero does
not end: a reload that met one would stop the supervisor. Lowest of the rooms: it knows
no option, and what is in a file is its caller's business.
"""

import errno
import os
import select
import stat
import time

# More than anybody writes into one: a hundred bytes a user, for 160 000 users
MOST_BYTES = 16 << 20
# `-c <(…)` is a pipe, whose writer begins when we do. All pipes of a process share this
# time, from the first file on
PATIENCE_S = 10.0

_NULL = os.makedev(1, 3)
_deadline = 0.0


class FileError(ValueError):
    """A file that cannot be used: the reason, without its name."""


def stop_waiting() -> None:
    """The start is over: a pipe is read by a reload only if all of it is there."""
    global _deadline
    _deadline = time.monotonic()


def read_file(path: str) -> bytes:
    """Returns what a file, or a pipe of somebody who writes now, holds.

    Raises OSError where it cannot be opened or read, and FileError where it is no file,
    or is longer than MOST_BYTES.
    """
    global _deadline
    _deadline = _deadline or time.monotonic() + PATIENCE_S
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        mode = status.st_mode
        if stat.S_ISDIR(mode):               # open(2) is content with one
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if stat.S_ISFIFO(mode):
            return _read_pipe(fd, _deadline)
        if not stat.S_ISREG(mode) and status.st_rdev != _NULL:
            raise FileError("is a device, not a file")
        with open(fd, "rb", closefd=False) as file:
            return _whole(file.read(MOST_BYTES + 1))
    finally:
        os.close(fd)


def _read_pipe(fd: int, deadline: float) -> bytes:
    """Reads to the end. Without a writer read(2) says that the end is there: poll(2)
    does so only where a writer has been."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    data = b""
    while True:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise FileError("is a pipe that nobody has written to and closed; a start "
                            f"waits {PATIENCE_S:g} s for it, a reload does not: give a "
                            "file")
        part = os.read(fd, 1 << 16)
        if not part:
            return data
        data = _whole(data + part)


def _whole(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise FileError(f"is longer than {MOST_BYTES} bytes")
    return data
