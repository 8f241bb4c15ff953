"""The store of captures, as the writer has it: usable, awaited, or full.

    usable ──NotNow──> awaited: rows wait for it, and it is opened again after `pause_s`
      │ └────NoRoom──> full: rows are lost, until a disk has room for others
      └──any other──> row by row: only those that it refuses are lost (R71)

So it is with a file and with a server. A file that was deleted, or moved, is made again
(R72). `Queue` puts a thread in front of it: recordings do not wait for captures.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from cutthrough.config.database import is_url
from cutthrough.exchange.failures import Failures
from cutthrough.storage.settings import Settings
from cutthrough.storage.store import NoRoom, NotNow, Rows, Store, StoreError
from cutthrough.storage.stores import open_store
from cutthrough.tape.batch import Batch
from cutthrough.tape.ring import Ring

log = logging.getLogger("cutthrough")

# Between two looks at ages, at rows to be indexed, and at the file's name
HOUSEKEEPING_S = 1.0
MEASURE_S = 60.0
# Between two attempts: the first, doubled until the last, of a server and of a file
AWAY_S, MOST_AWAY_S, MOST_LOCKED_S = 0.25, 10.0, 1.0
# Rows that are indexed at a time, some 20 µs each
INDEX_ROWS = 500
# Under load the index has one of so many parts of the time, and one; and at the end
# this time
INDEX_SHARE, LAST_INDEX_S = 3, 1.0
# Bytes of rows that wait in a Queue: as much as the largest ring has
MOST_QUEUED = 32 << 20
# For the last rows when the writer ends
END_S = 9.0


class Outlet:
    """The writer's store. The first call opens it, in the thread that makes the call.
    """

    def __init__(self, settings: Settings, failures: Failures) -> None:
        """`failures`: counts rows that the store refuses."""
        self._settings, self._failures = settings, failures
        self._most_away_s = MOST_AWAY_S if is_url(settings.database) else MOST_LOCKED_S
        self._store: Store | None = None
        self._to_index = True
        self._is_indexed = True              # False: indexing waits for the store
        self._is_pruned = True
        self._index_from = 0.0
        self._lost = 0                       # rows since the last that was written
        self.pause_s = 0.0                   # until the next attempt; 0: it is usable
        self.reason = ""                     # why it is not
        self._kept_house = self._measured = time.monotonic()

    @property
    def is_busy(self) -> bool:
        """Is there work for `keep_house`?"""
        return not self.pause_s and (
            self._to_index or (self._store is not None and self._store.is_over))

    def open(self) -> bool:
        """False: it is awaited."""
        try:
            self._open()
        except NotNow as error:
            self._note_away(error)
            return False
        return True

    def _open(self) -> Store:
        """Raises NotNow."""
        if self._store is not None:
            if self._store.is_there:
                return self._store
            log.warning("captured exchanges: %s was deleted or moved; it is made again",
                        self._settings.database)
            self.close()
        settings = self._settings
        try:
            store = open_store(settings.database, settings.count, settings.bytes,
                               settings.age, settings.program,
                               compress=settings.compress)
            store.open()
        except NotNow:
            raise
        except (OSError, StoreError) as error:
            raise NotNow(str(error)) from None
        self._store = store
        return store

    def write(self, rows: Rows) -> int:
        """Returns how many are lost for want of room. Raises NotNow: they are to be
        given again after `pause_s`."""
        try:
            lost = self._write(rows)
        except NotNow as error:
            self._note_away(error)
            raise
        self._note_back()
        if not lost:
            self._to_index = True
            if self._lost:
                log.warning("captured exchanges are written again; %d were lost",
                            self._lost)
            self._lost = 0
        return lost

    def _write(self, rows: Rows) -> int:
        store = self._open()
        try:
            store.write(rows)
        except NotNow:
            raise
        except NoRoom as error:
            return self._lose(len(rows), error)
        except Exception:
            self.close()
            return self._write_alone(list(rows))
        return 0

    def _write_alone(self, rows: Rows) -> int:
        """One of them was refused, or the store is another."""
        lost = 0
        for row in rows:
            try:
                self._open().write([row])
            except NotNow:
                raise
            except NoRoom as error:
                lost += self._lose(1, error)
            except Exception as error:
                self._failures.add(error)
        return lost

    def _lose(self, count: int, error: NoRoom) -> int:
        """Logs the first failure, for a disk may be full for days."""
        if not self._lost:
            log.error("captured exchanges cannot be written: %s; they are dropped and "
                      "counted until they can", error)
        self._lost += count
        return count

    def _note_away(self, error: NotNow) -> None:
        """Logs the first failure, and other failures than its absence; sets the
        time until the next attempt."""
        if not self.pause_s or (type(error) is NotNow and str(error) != self.reason):
            log.error("captured exchanges cannot be written: %s; they wait for it, and "
                      "what has no room is dropped and counted", error)
        self.pause_s = min(2 * self.pause_s or AWAY_S, self._most_away_s)
        self.reason = str(error)
        if type(error) is NotNow:            # the next rows are for another file
            self.close()

    def _note_back(self) -> None:
        if self.pause_s:
            log.warning("captured exchanges are written again")
        self.pause_s, self.reason = 0.0, ""

    def keep_house(self) -> None:
        """Indexes words, and deletes rows that have become too old."""
        if self._to_index and not self.pause_s:
            self.index()
        now = time.monotonic()
        if now - self._kept_house >= (self.pause_s or HOUSEKEEPING_S) or (
                not self.pause_s and self._store is not None and self._store.is_over):
            self._delete_old(now)

    def _delete_old(self, now: float) -> None:
        self._kept_house = now
        try:
            store = self._open()
            if now - self._measured >= MEASURE_S:
                self._measured = now
                store.measure()
            store.prune()
            self._is_pruned = True
            self._note_back()
            self._to_index |= not self._is_indexed
        except NotNow as error:
            self._note_away(error)
            self._kept_house = time.monotonic()
        except StoreError as error:
            if self._is_pruned:              # a disk may be full for days
                log.error("captured exchanges cannot be deleted: %s", error)
            self._is_pruned = False

    def index_some(self) -> None:
        """Between two writes, of which each may be followed by the next: else a store
        under load would never be indexed. For a part of the time, because rows that
        come and go fast need no index."""
        begun = time.monotonic()
        if self._to_index and not self.pause_s and begun >= self._index_from:
            self.index()
            ended = time.monotonic()
            self._index_from = ended + INDEX_SHARE * (ended - begun)

    def index(self) -> None:
        try:
            self._to_index = self._open().index(INDEX_ROWS)
            self._is_indexed = True
        except StoreError as error:
            if self._is_indexed and not isinstance(error, NotNow):
                log.error("captured exchanges cannot be indexed: %s", error)
            self._to_index = self._is_indexed = False

    def finish(self) -> None:
        """Indexes rows for a moment, and closes it: the next writer, which reads the
        rings as soon as this one has ended, indexes the others."""
        until = time.monotonic() + LAST_INDEX_S
        while self._to_index and self._store is not None and time.monotonic() < until:
            self.index()
        self.close()

    def close(self) -> None:
        if self._store is not None:
            store, self._store = self._store, None
            store.close()


class Queue:
    """Batches that wait for an outlet, and the thread that brings them there. If there
    are too many, the next ones are lost, and counted in their rings. What ends the
    thread ends the writer, which is replaced."""

    def __init__(self, outlet: Outlet, on_moved: Callable[[], None]) -> None:
        """`on_moved` is called when fewer rows wait."""
        self._outlet, self._on_moved = outlet, on_moved
        self._there = threading.Condition()
        self._batches: deque[tuple[Batch, Ring]] = deque()
        self._bytes = self.waiting = 0       # and rows
        self._is_late = False                # a turn has waited for it in vain
        self._lost = 0
        self._closing = False
        self._error: BaseException | None = None     # that has ended the thread
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_settled(self) -> bool:
        """Is all written, as far as it can be?"""
        return not self.waiting or self._outlet.pause_s > 0

    # In the writer's thread.

    def put(self, rows: Batch, ring: Ring) -> None:
        """Raises what has ended the thread."""
        with self._there:
            if self._error is not None:
                raise self._error
            if self._batches and self._bytes + rows.n_bytes > MOST_QUEUED:
                if not self._lost:
                    log.error("captured exchanges are dropped and counted: too many "
                              "wait for their store")
                self._lost += len(rows)
                ring.lose(unwritten=len(rows))
                return
            self._batches.append((rows, ring))
            self._bytes += rows.n_bytes
            self.waiting += len(rows)
            self._there.notify_all()

    def wait(self, seconds: float) -> None:
        """Until all is written: then it is not lost if the process is killed. Not if it
        takes long, and then not again before that."""
        with self._there:
            if not self._is_late:
                self._is_late = not self._there.wait_for(
                    lambda: self.is_settled or self._error is not None, seconds)

    def close(self) -> None:
        with self._there:
            self._closing = True
            self._there.notify_all()
        self._thread.join(END_S)
        with self._there:
            left = list(self._batches)
            self.waiting = 0
        for rows, ring in left:
            ring.lose(unwritten=len(rows))
        if left:
            reason = "no answer in time" if self._error is None else (
                type(self._error).__name__)
            log.error("%d captured exchanges are lost: %s",
                      sum(len(rows) for rows, _ in left), self._outlet.reason or reason)

    # In its own.

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:       # the next `put` raises it
            with self._there:
                self._error = error
                self._there.notify_all()

    def _work(self) -> None:
        while True:
            with self._there:
                if not (self._batches or self._closing or self._outlet.is_busy):
                    self._there.wait(self._outlet.pause_s or HOUSEKEEPING_S)
                if not self._batches and self._closing:
                    break
                batch = self._batches[0] if self._batches else None
                is_last = self._closing
            if batch is None:
                self._outlet.keep_house()
            elif self._write(*batch):
                self._on_moved()
            elif is_last:
                break
            else:
                with self._there:
                    self._there.wait_for(lambda: self._closing, self._outlet.pause_s)
        self._outlet.finish()

    def _write(self, rows: Batch, ring: Ring) -> bool:
        """False: they wait."""
        count = len(rows)
        try:
            lost = self._outlet.write(rows)
        except NotNow:
            with self._there:
                self._there.notify_all()
            return False
        if lost:
            ring.lose(unwritten=lost)
        with self._there:
            if self._batches:                # else `close` has given them up
                self._batches.popleft()
                self._bytes -= rows.n_bytes
                self.waiting -= count
                self._is_late &= self.waiting > 0
                self._there.notify_all()
            if self._lost and not self._batches:
                log.warning("captured exchanges are kept again; %d were lost",
                            self._lost)
                self._lost = 0
        return True
