"""Reads the files that a configuration names, and never blocks for ever.

open(2) of a FIFO waits if it has no writer, and read(2) of a terminal or of /dev/zero
does not end: either would stop the supervisor at a reload. This module knows no option
and does not interpret a file's content.
"""

import codecs
import contextlib
import errno
import os
import resource
import select
import stat
import time
from collections.abc import Iterator, Mapping

# Enough for a users file of 160 000 users, at a hundred bytes each
MOST_BYTES = 16 << 20
# `-c <(…)` is a pipe whose writer starts together with this process. All pipes of a
# process share this time, which begins with the first file
PATIENCE_S = 10.0

# Debian's name for the home of those who have none: nothing is there, and nobody but
# root can make it
HOMELESS = "/nonexistent"

# Of a file's content: time of the change in ns, bytes, inode
Version = tuple[int, int, int]

_NULL = os.makedev(1, 3)
_deadline = 0.0
_versions: dict[str, Version | None] = {}


class FileError(ValueError):
    """A file that cannot be used: the reason, without its name."""


def home_of(environ: Mapping[str, str]) -> str:
    """The user's home directory. A container's user may have none, and no HOME: `~`
    would then be a directory with this name, wherever the user is."""
    import pwd

    home = environ.get("HOME", "")
    with contextlib.suppress(KeyError):
        home = home if os.path.isabs(home) else pwd.getpwuid(os.getuid()).pw_dir
    return home if os.path.isabs(home) else HOMELESS


def stop_waiting() -> None:
    """Ends the start: from now on a pipe is read only if it is already complete."""
    global _deadline
    _deadline = time.monotonic()


@contextlib.contextmanager
def naming(path: str) -> Iterator[None]:
    """Within, an OSError names this file: read(2) has a descriptor alone."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


def take_versions() -> dict[str, Version | None]:
    """Returns the versions of the files that were read since the last call; None: it
    could not be opened. Pipes and devices have none."""
    global _versions
    versions, _versions = _versions, {}
    return versions


def version_of(path: str) -> Version | None:
    """Returns the present one; None: the file is not there."""
    try:
        return _version(os.stat(path))
    except OSError:
        return None


def _version(status: os.stat_result) -> Version:
    return status.st_mtime_ns, status.st_size, status.st_ino


def decode(data: bytes) -> str:
    """Returns the text of a file. Raises FileError, which quotes nothing of it (R37).

    A byte order mark, which editors of Windows write, is no part of it: it would be a
    part of the first key, of the first user's name, or of a password.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            raise FileError("is UTF-16: save it as UTF-8") from None
        line = data.count(b"\n", 0, error.start) + 1
        raise FileError(f"is not UTF-8, in line {line}") from None


def describe_error(error: OSError) -> str:
    """The error's own text. A file may be too large for the limit of this process,
    which counts for memory that processes share, too."""
    return (error.strerror or str(error)) + (
        limit_of_files() if error.errno == errno.EFBIG else "")


def describe_errno(number: int) -> str:
    return describe_error(OSError(number, os.strerror(number)))


def limit_of_files() -> str:
    """Of their size, for the end of a message; "": there is none."""
    soft, _ = resource.getrlimit(resource.RLIMIT_FSIZE)
    return "" if soft == resource.RLIM_INFINITY else f" (ulimit -f: {soft} bytes)"


def read_file(path: str) -> bytes:
    """Returns the content of a file, or of a pipe that has a writer.

    Raises OSError if it cannot be opened or read, and FileError if it is a device, a
    pipe that stays incomplete, or longer than MOST_BYTES.
    """
    global _deadline
    _deadline = _deadline or time.monotonic() + PATIENCE_S
    _versions[path] = None
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        _versions[path] = _version(status)
        mode = status.st_mode
        if stat.S_ISDIR(mode):               # open(2) accepts a directory
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(mode):
            del _versions[path]
        if stat.S_ISFIFO(mode):
            with naming(path):
                return _read_pipe(fd, _deadline)
        if not stat.S_ISREG(mode) and status.st_rdev != _NULL:
            raise FileError("is a device, not a file")
        with naming(path), open(fd, "rb", closefd=False) as file:
            return _whole(file.read(MOST_BYTES + 1))
    finally:
        os.close(fd)


def _read_pipe(fd: int, deadline: float) -> bytes:
    """Reads to the end. If there is no writer, read(2) returns the end of file at once;
    poll(2) reports it only after a writer has closed the pipe."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    data = b""
    while True:
        if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            raise FileError("is a pipe that no writer has filled and closed; a start "
                            f"waits {PATIENCE_S:g} s for one, a reload does not: use a "
                            "file")
        part = os.read(fd, 1 << 16)
        if not part:
            return data
        data = _whole(data + part)


def _whole(data: bytes) -> bytes:
    if len(data) > MOST_BYTES:
        raise FileError(f"is longer than {MOST_BYTES} bytes")
    return data
