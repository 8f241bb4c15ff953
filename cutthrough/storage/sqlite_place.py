"""Which file a path named when its database was opened.

If a database is deleted or moved, its connection goes on writing to it. The log of
changes is another file, and SQLite finds it by its name: the last connection deletes it
when it closes, even if the name is another database's now. `Place.close` prevents it.
"""

import contextlib
import fcntl
import os
import sqlite3
import struct
from collections.abc import Iterator

# SQLite's lock of a file for reading: sqlite3's os.h, SHARED_FIRST and SHARED_SIZE
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510
_FLOCK = "hhqqi0q"                           # struct flock


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
        return os.fstat(self._fd).st_nlink == 0

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
