"""A database's file: made, or found, and which one its path named when it was opened.

If a database is deleted or moved, its connection goes on writing to it. The log of
changes is another file, and SQLite finds it by its name: the last connection deletes it
when it closes, even if the name is another database's now. `Place.close` prevents it.
"""

import contextlib
import errno
import fcntl
import os
import sqlite3
import stat
import struct
from collections.abc import Iterator

# SQLite's lock of a file for reading: sqlite3's os.h, SHARED_FIRST and SHARED_SIZE
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
_FLOCK = "hhqqi0q"                           # struct flock


def make_file(path: str) -> None:
    """Makes the file, or checks that only its owner may read it. Raises OSError.

    A file that is there is not opened: POSIX ends all locks of a process on a file when
    any descriptor of it is closed, and without SQLite's another program that closes the
    database would delete the log of changes that is in use here. O_PATH has no locks.

    The log that a file which was moved away has left is SQLite's to remove: SQLite does
    it for an empty file, under its locks. Here it might be another one's by then.
    """
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                         | os.O_CLOEXEC, 0o600))
        return
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if stat.S_ISLNK(status.st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(0, "is not a regular file", path)
        if stat.S_IMODE(status.st_mode) & 0o077:
            os.chmod(f"/proc/self/fd/{fd}", 0o600)
    finally:
        os.close(fd)


class Place:
    """Until `close`."""

    def __init__(self, path: str) -> None:
        """Raises OSError."""
        self._path, self._fd = path, -1
        # O_PATH has no locks, so its close ends none
        self._fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)

    @property
    def is_there(self) -> bool:
        """Does the path name the same file still?"""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except OSError:
            return False

    @property
    def is_deleted(self) -> bool:
        try:
            return os.fstat(self._fd).st_nlink == 0
        except OSError:                      # its server has lost it: ESTALE of NFS
            return True

    def __del__(self) -> None:
        if self._fd >= 0:                    # no database could be opened
            os.close(self._fd)

    def close(self, base: sqlite3.Connection) -> None:
        """Closes the connection, too. Idempotent."""
        if self._fd < 0:
            return
        try:
            if self.is_there:
                base.close()
                return
            if not self.is_deleted:          # the log goes with the file
                with contextlib.suppress(sqlite3.Error):
                    base.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            with _read_elsewhere(self._fd):
                base.close()
        finally:
            os.close(self._fd)
            self._fd = -1


@contextlib.contextmanager
def _read_elsewhere(path_fd: int) -> Iterator[None]:
    """As if another process read this database: nobody's connection is the last one."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            fd = os.open(f"/proc/self/fd/{path_fd}", os.O_RDWR | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            # Of the open file, not of the process: it counts against SQLite's own
            fcntl.fcntl(fd, fcntl.F_OFD_SETLK, struct.pack(
                _FLOCK, fcntl.F_RDLCK, os.SEEK_SET, _SHARED_FIRST, _SHARED_SIZE, 0))
        yield
