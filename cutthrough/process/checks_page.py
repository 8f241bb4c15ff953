"""The page of parents' checks, which all workers share: turns and results.

A row belongs to one check. A worker that finds it due claims it: its time moves on, so
that no other worker makes the check, and is due again if that worker dies. The
supervisor makes the page and does not use it.
"""

import contextlib
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

KEY_BYTES = 16
ROW = struct.Struct("=16sqqqqq")
MOST_ROWS = 1024
PAGE_BYTES = ROW.size * MOST_ROWS
# A row that was due so long ago belongs to no check any more
STALE_MS = 3_600_000


class Row(NamedTuple):
    """`at_ms` is 0 before the first result. `streak`: results in a row that did not
    change `works`, though they differ from it."""

    key: bytes
    due_ms: int
    at_ms: int
    took_us: int
    works: int
    streak: int = 0


def make_page() -> int:
    """Returns the descriptor of a new page. Raises OSError."""
    fd = os.memfd_create("cutthrough-checks", os.MFD_CLOEXEC)
    os.ftruncate(fd, PAGE_BYTES)
    return fd


class ChecksPage:
    """The page behind `fd`, which it owns; -1: a page of this process alone."""

    def __init__(self, fd: int = -1) -> None:
        self._fd = fd
        self._memory: mmap.mmap | bytearray = (
            bytearray(PAGE_BYTES) if fd < 0 else mmap.mmap(fd, PAGE_BYTES))

    def close(self) -> None:
        """Releases the descriptor. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        # The kernel releases it if the process dies
        if self._fd >= 0:
            fcntl.lockf(self._fd, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if self._fd >= 0:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def find(self, key: bytes, now_ms: int) -> int:
        """Returns the number of this check's row, made if need be; -1: no room."""
        with self._locked():
            free = -1
            for number in range(MOST_ROWS):
                row = self.read(number)
                if row.key == key:
                    return number
                if free < 0 and (not any(row.key) or row.due_ms < now_ms - STALE_MS):
                    free = number
                if not any(row.key):
                    break                    # rows are taken in order
            if free >= 0:
                ROW.pack_into(self._memory, free * ROW.size, key, now_ms, 0, 0, 0,
                              0)
            return free

    def read(self, number: int) -> Row:
        return Row._make(ROW.unpack_from(self._memory, number * ROW.size))

    def claim(self, number: int, now_ms: int, until_ms: int) -> bool:
        """Takes a check that is due; it is due again at `until_ms`."""
        if self.read(number).due_ms > now_ms:
            return False
        with self._locked():
            row = self.read(number)
            if row.due_ms > now_ms:
                return False
            self._write(number, row._replace(due_ms=until_ms))
            return True

    def report(self, number: int, key: bytes, now_ms: int, due_ms: int, took_us: int,
               works: bool, streak: int = 0) -> None:
        """Writes a result; the next check is due at `due_ms`."""
        with self._locked():
            if self.read(number).key == key:
                self._write(number, Row(key, due_ms, now_ms, took_us, int(works),
                                        streak))

    def release(self, number: int, key: bytes, now_ms: int) -> None:
        """Gives a claimed check up, without a result."""
        with self._locked():
            row = self.read(number)
            if row.key == key:
                self._write(number, row._replace(due_ms=now_ms))

    def _write(self, number: int, row: Row) -> None:
        ROW.pack_into(self._memory, number * ROW.size, *row)
