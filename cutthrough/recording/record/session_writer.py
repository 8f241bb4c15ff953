"""Writes the exchanges of one session into its file, in the writer's process.

    exchanges ─┬─ fast ─> RowEncoder.add ─────────> a row ─┬─> Session.put_rows
               │               └ a reason                  │       └ they wait
               └─ slow ─────────> Converter ─> a Recording ┘         as Recordings

All take the slow path if there is a hook, or if some wait already. If the file cannot
be written, some recordings wait for it; more are lost and counted.
"""

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from cutthrough.recording.model.masking import Redaction, Scope
from cutthrough.recording.model.recorded_heads import HeadCache
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.record.conversion import Converter, make_recording
from cutthrough.recording.record.row_encoder import FAILED, RowEncoder
from cutthrough.recording.sessions.directory import SUFFIX, VALUES, Session, Sessions
from cutthrough.recording.sessions.offsets import Offset
from cutthrough.recording.sessions.session import Manifest, NoSession
from cutthrough.storage.settings import Recordings
from cutthrough.storage.store import Refused, StoreError
from cutthrough.tape.batch import Batch
from cutthrough.tape.ring_exchange import RingExchange

log = logging.getLogger("cutthrough")

# Between two looks at the bounds of the session
PRUNE_S = 10.0
CHECKPOINT_S = 0.5
# Between two attempts to write, and how many wait for that
AGAIN_S = 0.5
# The writer waits so long for a lock: captures wait for it, too
LOCK_S = 1.0
LOOK_S = 0.1                                 # … at the end
MOST_WAITING, MOST_BYTES = 10_000, 32 << 20
PART_ROWS = 64


class TooManySessions(ValueError):
    """There are too many sessions: nothing waits for this session."""


class SessionWriter:
    """`may_be_made` raises TooManySessions if the file must not be made."""

    def __init__(self, name: str, settings: Recordings, converter: Converter,
                 may_be_made: Callable[[], None]) -> None:
        self._path = Path(settings.directory) / f"{name}{SUFFIX}"
        self._name, self._settings, self._converter = name, settings, converter
        self._may_be_made = may_be_made
        self._session: Session | None = None
        self._rows = Batch(len(VALUES))
        self._failed = ""
        self.waiting: list[Recording] = []   # until they can be written
        self._tried = 0.0
        self._written = 0.0                  # 0: the session's file has all of it
        self._pruned = time.monotonic()

    def write(self, exchanges: list[RingExchange], offset: Offset | None = None) -> int:
        """Returns how many could not be written."""
        if not (self._converter.has_hook or self.waiting or self._failed):
            return self._write_rows(exchanges, offset)
        heads: HeadCache = {}
        recordings = self._converter.convert_all(exchanges, heads)
        return self._put(recordings, offset) if recordings or self.waiting else 0

    def _write_rows(self, exchanges: list[RingExchange], offset: Offset | None) -> int:
        """As `write`: only those become Recordings that take the slow path, or wait."""
        heads: HeadCache = {}
        try:
            session = self.open()
        except TooManySessions as error:
            return self._lose(len(exchanges), error)
        except (OSError, ValueError, StoreError) as error:
            return self._wait(self._converter.convert_all(exchanges, heads), error)
        entries, remaining = list[RingExchange | Recording](), iter(exchanges)
        try:
            session.put_rows(
                self._make_rows(session, remaining, heads, entries), offset)
        except Exception as error:
            waiting = [entry if isinstance(entry, Recording) else
                       make_recording(entry, heads) for entry in entries]
            waiting += self._converter.convert_all(remaining, heads)
            if is_of_file(error):
                return self._wait(waiting, error)
            return self._put_accepted(session, waiting, offset)
        if entries:
            self._written = time.monotonic()
        return 0

    def _make_rows(self, session: Session, exchanges: Iterator[RingExchange],
                   heads: HeadCache, entries: list[RingExchange | Recording]
                   ) -> Iterator[Batch]:
        """In parts small enough for a CPU's cache until SQLite has them; in one part if
        bodies are read, because the file is locked while the next parts are made.
        `entries` has the recordings of the exchanges taken."""
        rows = self._rows
        encoder = RowEncoder(session.masker, rows)
        most = None if session.masker.reads_bodies else PART_ROWS
        while part := list(itertools.islice(exchanges, most)):
            rows.clear()
            for exchange in part:
                reason = encoder.add(exchange)
                if reason is None:
                    entries.append(exchange)
                    continue
                recording = self._converter.take_slow_path(
                    exchange, heads, reason,
                    encoder.error if reason is FAILED else None)
                if recording and (row := self._row(session, recording)):
                    rows.append(row)
                    entries.append(recording)
            if len(rows):
                yield rows

    def _row(self, session: Session, recording: Recording) -> tuple[object, ...] | None:
        """None if it cannot be redacted: it is lost, and counted (R71)."""
        try:
            return session.row(recording)
        except Exception as error:
            self._converter.failures.add(error)
            return None

    def _put(self, recordings: list[Recording], offset: Offset | None = None) -> int:
        """Writes them behind the waiting recordings. Returns how many are lost."""
        lost = 0
        if self.waiting:                     # of earlier offsets: apart from this one
            former, self.waiting = self.waiting, []
            lost = self._put_together(former)
            if self.waiting:
                return lost + self._keep(self.waiting + recordings)
        return lost + self._put_together(recordings, offset) if recordings else lost

    def _put_together(self, recordings: list[Recording], offset: Offset | None = None
                      ) -> int:
        """`offset`: these are all before it. Returns how many are lost."""
        if self._failed and time.monotonic() - self._tried < AGAIN_S:
            return self._keep(recordings)
        try:
            session = self.open()
        except TooManySessions as error:
            return self._lose(len(recordings), error)
        except (OSError, ValueError, StoreError) as error:
            return self._wait(recordings, error)
        rows = [row for recording in recordings
                if (row := self._row(session, recording))]
        try:
            session.put_rows([Batch.of(rows, len(VALUES))], offset)
        except Exception as error:
            return self._wait(recordings, error) if is_of_file(error) else (
                self._put_accepted(session, recordings, offset))
        self._written = time.monotonic()
        if self._failed:
            log.warning("recordings are written again")
        self._failed = ""
        return 0

    def _put_accepted(self, session: Session, recordings: list[Recording],
                      offset: Offset | None) -> int:
        """Without those that keep the others from being written (R71): each is tried
        alone, and the rest is written in one transaction, with its offset."""
        rows, accepted = [], list[Recording]()
        for number, recording in enumerate(recordings):
            try:
                if row := self._row(session, recording):
                    with contextlib.suppress(_Undone):
                        session.put_rows(_only_tried(Batch.of([row], len(VALUES))))
                    rows.append(row)
                    accepted.append(recording)
            except Exception as error:
                if is_of_file(error):
                    return self._wait(accepted + recordings[number:], error)
                self._converter.failures.add(error)
        try:
            session.put_rows([Batch.of(rows, len(VALUES))], offset)
        except Exception as error:
            if is_of_file(error):
                return self._wait(accepted, error)
            self._converter.failures.add(error, len(rows))
        self._written = time.monotonic()
        return 0

    def _wait(self, waiting: list[Recording], error: Exception) -> int:
        self._note(error)
        self._tried = time.monotonic()
        return self._keep(waiting)

    def _lose(self, count: int, error: Exception) -> int:
        self._note(error)
        return count

    def _keep(self, waiting: list[Recording]) -> int:
        self.waiting = waiting[:count_fitting(waiting)]
        return len(waiting) - len(self.waiting)

    def _note(self, error: Exception) -> None:
        if self._failed != str(error):
            self._failed = str(error)
            log.error("recordings cannot be written: %s", error)
        self.close()

    def open(self) -> Session:
        """The session; if it is missing, it is made, with the configured redaction and
        bounds. Raises OSError, ValueError and StoreError."""
        if self._session is not None:
            if self._session.is_there:
                return self._session
            log.warning("recordings: %s was deleted or moved; it is made again",
                        self._path)
        self.close()
        sessions = Sessions(self._settings.directory)
        try:
            self._session = sessions.open(self._name)
        except NoSession:
            self._may_be_made()
            self._session = sessions.create(self._name, manifest_of(self._settings))
        self._session.wait_for_lock(LOCK_S)
        return self._session

    def checkpoint(self) -> None:
        if self._session is not None and self._session.wal_size.is_long:
            with contextlib.suppress(StoreError):
                self._session.checkpoint()

    def on_idle(self) -> None:
        """When nothing is to be written: tries again, settles, reads bounds anew."""
        now = time.monotonic()
        if self.waiting and now - self._tried >= AGAIN_S:
            self._put([])
        if self._session is not None and self._written and (
                now - self._written >= CHECKPOINT_S):
            self._written = 0.0
            with contextlib.suppress(StoreError):
                self._session.checkpoint()
        if self._session is not None and now - self._pruned >= PRUNE_S:
            self._pruned = now
            with contextlib.suppress(StoreError):
                self._session.read_bounds()

    def finish(self, until: float) -> int:
        """Writes the waiting recordings, tried until then. Returns how many are
        lost."""
        while self.waiting:
            self._tried = 0.0
            self._put([])
            if self.waiting and time.monotonic() >= until:
                log.error("%d recordings are lost: %s", len(self.waiting), self._failed)
                break
            if self.waiting:
                time.sleep(LOOK_S)
        lost, self.waiting = len(self.waiting), []
        self.close()
        return lost

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class _Undone(Exception):
    """Ends a transaction that was only tried."""


def _only_tried(rows: Batch) -> Iterator[Batch]:
    """Of `put_rows`: it inserts them, and adds nothing."""
    yield rows
    raise _Undone


def is_of_file(error: Exception) -> bool:
    """If not, it is perhaps of a recording."""
    return isinstance(error, StoreError) and not isinstance(error, Refused)


def count_fitting(waiting: Iterable[Recording]) -> int:
    """How many, from the first on, may wait."""
    left, count = MOST_BYTES, 0
    for recording in waiting:
        left -= len(recording.request.body)
        left -= sum([len(chunk.data) for chunk in recording.response.chunks])
        left -= sum([len(message.data) for message in recording.response.messages])
        if left < 0 or count == MOST_WAITING:
            break
        count += 1
    return count


def manifest_of(settings: Recordings) -> Manifest:
    """Returns the manifest of a new session."""
    return Manifest(
        redaction=Redaction(fields=settings.fields, query=settings.query,
                            json=settings.json, body=settings.body, scopes=tuple(
                                Scope(**scope) for scope in settings.scopes)),
        count=settings.count, age_s=settings.age)
