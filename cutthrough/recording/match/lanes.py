"""The place in each sequence, and the state: by lane, for all workers alike.

    DIRECTORY/.places-PID-BEGUN         SQLite, 0600, of the program with this PID
    DIRECTORY/.places-PID-BEGUN-lock    each of its workers has locked it

The workers of a program take the recordings of a sequence in turn, each one once: a
place is read and moved on in one transaction of some 40 µs. Nothing is synced, because
it is of no use when the program has ended: then nobody holds the lock, and the next
program removes it. A worker that is killed leaves nothing half done.

If another process keeps the file locked, or it cannot be written, a worker goes on with
places of its own, says so, and tries again after a minute: no request fails, and those
that take a place within LOCKED_S wait for it. A thread does (aside.py): the loop, and
requests that take no place, do not.
"""

import contextlib
import fcntl
import hashlib
import logging
import os
import sqlite3
import time
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from cutthrough.storage.sqlite_store import use_wal

log = logging.getLogger("cutthrough")

PREFIX = ".places-"
LOCK = "-lock"
# At the start, when the other workers open it, too
BUSY_S = 1.0
# A worker that was stopped in the middle of its 40 µs: under much load 0.25 s
# were too short. SQLite itself would look too seldom among four workers. Then not again
# for RETRY_S, so that a lock takes a sixtieth of the time of requests
LOCKED_S, LOOK_S, RETRY_S = 1.0, 0.0002, 60.0
# Places and values that are kept, the newest; a client chooses its lane (R31)
MOST_ROWS = 100_000
PRUNE_EACH = 1000
# Of one matcher alone; the one that was used least recently starts anew
MOST_LANES = 10_000

_SCHEMA = """
CREATE TABLE IF NOT EXISTS places (
    at INTEGER PRIMARY KEY AUTOINCREMENT, run TEXT NOT NULL, lane BLOB NOT NULL,
    name TEXT NOT NULL, value NOT NULL, UNIQUE (run, lane, name))
"""


class Lane:
    """`places`: by a sequence's number."""

    __slots__ = ("places", "state")

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.state: dict[str, str] = {}


class OwnLanes:
    """The lanes of one matcher alone; its sequences are the serials of its groups."""

    def __init__(self) -> None:
        self.lanes: OrderedDict[str, Lane] = OrderedDict()

    def lane(self, name: str) -> Lane:
        lane = self.lanes.get(name)
        if lane is None:
            lane = self.lanes[name] = Lane()
            if len(self.lanes) > MOST_LANES:
                self.lanes.popitem(last=False)
        else:
            self.lanes.move_to_end(name)
        return lane


class SharedLanes:
    def __init__(self, path: Path) -> None:
        """Makes the file if it does not exist, and removes those of dead programs.
        Raises OSError and sqlite3.Error."""
        self._own = OwnLanes()               # while the file cannot be used
        self._retry_at = 0.0
        self._lock = _locked(_lock_of(path))
        self._moves = 0
        self._is_stopped = False
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, self._lock)
            os.close(os.open(
                path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            self._base = sqlite3.connect(    # one thread after the other
                path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            stack.callback(self._base.close)
            use_wal(self._base, BUSY_S)
            self._base.execute("PRAGMA synchronous = OFF")
            self._base.execute(_SCHEMA)
            self._base.execute("PRAGMA busy_timeout = 0")
            stack.pop_all()                  # for `close`
        _remove_stale(path.parent)

    @contextlib.contextmanager
    def hold(self, run: str, name: str, sequences: list[int]) -> Iterator[Lane]:
        """This lane with the places of these sequences. The file is locked until the
        block ends; then the places are written, unless the block raises. If the file
        cannot be used, the lane is this worker's own."""
        key = hashlib.blake2b(name.encode(), digest_size=16).digest()
        lane = Lane()
        try:
            before = self._begin(run, key, sequences, lane)
        except sqlite3.Error as error:
            self._give_up(error)
            before = None
        if before is None:
            yield self._own.lane(f"{run} {key.hex()}")
            return
        try:
            yield lane
        except BaseException:
            self._roll_back()
            raise
        try:
            self._keep(run, key, before, lane)
        except sqlite3.Error as error:
            self._give_up(error)

    def _begin(self, run: str, key: bytes, sequences: list[int], lane: Lane
               ) -> dict[str, int | str] | None:
        """The file's values of a lane, which it fills; None: it is not to be used now.
        Raises sqlite3.Error."""
        if self._retry_at and time.monotonic() < self._retry_at:
            return None
        before: dict[str, int | str] = {}
        base = self._base
        until = time.monotonic() + LOCKED_S
        while True:
            try:
                base.execute("BEGIN IMMEDIATE")
                break
            except sqlite3.OperationalError:
                if self._is_stopped or time.monotonic() >= until:
                    raise
                time.sleep(LOOK_S)
        self._retry_at = 0.0
        for sequence in sequences:
            for (value,) in base.execute(
                    "SELECT value FROM places WHERE run = ? AND lane = ? AND "
                    "name = ?", (run, key, str(sequence))):
                lane.places[sequence] = before[str(sequence)] = value
        for name, value in base.execute(
                "SELECT name, value FROM places WHERE run = ? AND lane = ? AND "
                "name >= '=' AND name < '>'", (run, key)):
            lane.state[name[1:]] = before[name] = value
        return before

    def _keep(self, run: str, key: bytes, before: dict[str, int | str], lane: Lane
              ) -> None:
        """Raises sqlite3.Error."""
        base = self._base
        after: dict[str, int | str] = {
            **{str(sequence): place for sequence, place in lane.places.items()},
            **{f"={name}": value for name, value in lane.state.items()}}
        base.executemany(
            "INSERT INTO places (run, lane, name, value) VALUES (?, ?, ?, ?) "
            "ON CONFLICT DO UPDATE SET value = excluded.value",
            [(run, key, name, value) for name, value in after.items()
             if before.get(name) != value])
        base.executemany(
            "DELETE FROM places WHERE run = ? AND lane = ? AND name = ?",
            [(run, key, name) for name in before.keys() - after.keys()])
        self._moves += 1
        if self._moves % PRUNE_EACH == 0:
            base.execute("DELETE FROM places WHERE at <= (SELECT max(at) FROM "
                         "places) - ?", (MOST_ROWS,))
        base.execute("COMMIT")

    def _give_up(self, error: sqlite3.Error) -> None:
        """For RETRY_S the worker has places of its own."""
        self._roll_back()
        self._retry_at = time.monotonic() + RETRY_S
        log.error("recordings: each worker has places of its own for %g s: %s",
                  RETRY_S, error)

    def _roll_back(self) -> None:
        with contextlib.suppress(sqlite3.Error):
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")

    def stop(self) -> None:
        """Ends waits for the file. Any thread may call this."""
        self._is_stopped = True

    def close(self) -> None:
        self._base.close()
        os.close(self._lock)


def path_of(directory: str | Path, program: int) -> Path:
    """The file of the program with this process identifier. Raises OSError."""
    text = Path(f"/proc/{program}/stat").read_text(errors="replace")
    begun = text.rpartition(")")[2].split()[19]
    return Path(directory) / f"{PREFIX}{program}-{begun}"


def _lock_of(path: Path) -> Path:
    # Not the file itself: to close a descriptor of it would end SQLite's own locks
    return path.with_name(f"{path.name}{LOCK}")


def _locked(path: Path) -> int:
    """A descriptor that shows that the program lives."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_SH)
            if os.path.samestat(os.fstat(fd), path.stat()):
                return fd
        except FileNotFoundError:
            pass                             # it was removed before it was locked
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def _remove_stale(directory: Path) -> None:
    for lock in directory.glob(f"{PREFIX}*{LOCK}"):
        with contextlib.suppress(OSError):
            fd = os.open(lock, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                for end in ("-wal", "-shm", "", LOCK):
                    Path(f"{str(lock).removesuffix(LOCK)}{end}").unlink(missing_ok=True)
            finally:
                os.close(fd)
