"""Recordings of exchanges that rules record, in the session in force.

The session is read from the mode's file for each batch. If it does not exist it is
made, with the configured redaction and bounds. If a session cannot be written, some
recordings wait for it, and more are lost and counted.
"""

import contextlib
import importlib
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cutthrough.capture.settings import Recordings
from cutthrough.capture.store import StoreError
from cutthrough.capture.taped import Taped
from cutthrough.recording.heads import Known
from cutthrough.recording.masking import Redaction
from cutthrough.recording.model import Recording
from cutthrough.recording.modes import read_state
from cutthrough.recording.rows import RowMaker
from cutthrough.recording.session import Manifest, NoSession
from cutthrough.recording.sessions import Session, Sessions
from cutthrough.recording.taping import NotWhole, make_recording

log = logging.getLogger("cutthrough")

PRUNE_S = 10.0
SETTLE_S = 0.5
# Between two attempts to write, and how many wait for that
AGAIN_S = 0.5
MOST_WAITING, MOST_BYTES = 1000, 32 << 20
OnRecord = Callable[[Recording], Recording | None]


class Recorder:
    """Writes recordings to the session in force."""

    _may_make_rows = True

    def __init__(self, settings: Recordings) -> None:
        self._settings = settings
        self._session: Session | None = None
        self._name = ""
        self._failed = ""
        self._waiting: list[Recording] = []  # until they can be written
        self._tried = 0.0
        self._partial = 0
        self._written = 0.0                  # 0: the session's file has all of it
        self._pruned = time.monotonic()
        self._on_record = find_hook(settings.hooks)

    def write(self, taped: list[Taped]) -> int:
        """Returns how many could not be written."""
        if self._may_make_rows and not (
                self._on_record or self._waiting or self._failed):
            return self._write_rows(taped)
        known: Known = {}
        made = [found for one in taped if (found := self._recording(one, known))]
        return self.put(made) if made or self._waiting else 0

    def _write_rows(self, taped: list[Taped]) -> int:
        """As `write`: only what is rare becomes a Recording, and what must wait."""
        known: Known = {}
        try:
            session = self.open()
        except (OSError, ValueError, StoreError) as error:
            return self._wait([
                made for one in taped if (made := self._recording(one, known))], error)
        maker = RowMaker(session.masker)
        rows: list[tuple[object, ...] | Recording] = []
        kept: list[Taped | Recording] = []
        for one in taped:
            if row := maker.row(one):
                rows.append(row)
                kept.append(one)
            elif made := self._recording(one, known):
                rows.append(made)
                kept.append(made)
        if not rows:
            return 0
        try:
            session.put_rows([
                session.row(row) if isinstance(row, Recording) else row
                for row in rows])
        except StoreError as error:
            return self._wait([one if isinstance(one, Recording) else
                               make_recording(one, known) for one in kept], error)
        except ValueError as error:
            self._note(error)
            return len(rows)
        self._written = time.monotonic()
        return 0

    def _recording(self, one: Taped, known: Known) -> Recording | None:
        """None: it is not recorded."""
        try:
            found: Any = make_recording(one, known)
            if self._on_record is not None:
                found = self._on_record(found)
            if found is None or isinstance(found, Recording):
                return found
            raise TypeError(f"on_record returned {type(found).__name__}")
        except (Exception, SystemExit) as error:         # the operator's code may
            self._partial += 1
            if self._partial & (self._partial - 1) == 0:
                log.warning("an answer of %s is not recorded: %s (%d so far)",
                            one.host, error, self._partial)
        return None

    def put(self, made: list[Recording]) -> int:
        """Writes them behind those that could not be written before. Returns how many
        are lost."""
        waiting, self._waiting = self._waiting + made, []
        if self._failed and time.monotonic() - self._tried < AGAIN_S:
            return self._keep(waiting)
        try:
            session = self.open()
        except (OSError, ValueError, StoreError) as error:
            return self._wait(waiting, error)
        try:
            session.put(waiting)
        except StoreError as error:
            return self._wait(waiting, error)
        except ValueError as error:          # of one of them: it would fail again
            self._note(error)
            return len(waiting)
        self._written = time.monotonic()
        if self._failed:
            log.warning("recordings are written again")
        self._failed = ""
        return 0

    def _wait(self, waiting: list[Recording], error: Exception) -> int:
        self._note(error)
        self._tried = time.monotonic()
        return self._keep(waiting)

    def _keep(self, waiting: list[Recording]) -> int:
        self._waiting = waiting[:count_fitting(waiting)]
        return len(waiting) - len(self._waiting)

    def _note(self, error: Exception) -> None:
        if self._failed != str(error):
            self._failed = str(error)
            log.error("recordings cannot be written: %s", error)
        self.close()

    def take_lost(self) -> int:
        """How many were lost since the last call, beside those that `put` has told."""
        return 0

    @property
    def fails(self) -> bool:
        """Some recordings wait until they can be written."""
        return self._waiting != []

    def open(self) -> Session:
        settings = self._settings
        state = read_state(settings.directory)
        name = state.session or settings.session
        path = Path(settings.directory) / f"{name}.session"
        if self._session is not None and self._name == name and path.exists():
            return self._session
        self.close()
        sessions = Sessions(settings.directory)
        try:
            found = sessions.open(name)
        except NoSession:
            found = sessions.create(name, manifest_of(settings))
        self._session, self._name = found, name
        return found

    def prune(self) -> None:
        """When nothing is to be written."""
        now = time.monotonic()
        if self._waiting and now - self._tried >= AGAIN_S:
            self.put([])
        if self._session is not None and self._written and (
                now - self._written >= SETTLE_S):
            self._written = 0.0
            with contextlib.suppress(StoreError):
                self._session.settle()
        if self._session is not None and now - self._pruned >= PRUNE_S:
            self._pruned = now
            with contextlib.suppress(StoreError):
                self._session.prune()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def count_fitting(waiting: Iterable[Recording]) -> int:
    """How many, from the first on, may wait."""
    left, count = MOST_BYTES, 0
    for one in waiting:
        left -= len(one.request.body)
        left -= sum([len(chunk.data) for chunk in one.response.chunks])
        left -= sum([len(message.data) for message in one.response.messages])
        if left < 0 or count == MOST_WAITING:
            break
        count += 1
    return count


def manifest_of(settings: Recordings) -> Manifest:
    """Of a new session."""
    return Manifest(
        redaction=Redaction(fields=settings.fields, query=settings.query,
                            json=settings.json, body=settings.body),
        count=settings.count, age_s=settings.age)


def find_hook(name: str) -> OnRecord | None:
    """The method on_record of `module:Class`, or None. If it cannot be had, nothing is
    recorded: it may be there to remove secrets."""
    if not name:
        return None
    module, _, attribute = name.partition(":")
    try:
        made = getattr(importlib.import_module(module), attribute)()
        found: OnRecord | None = getattr(made, "on_record", None)
        return found
    except (Exception, SystemExit) as error:
        reason = f"{name}: {type(error).__name__}: {error}"
        log.error("nothing is recorded: %s", reason)

        def refuse(one: Recording) -> Recording | None:
            raise NotWhole(reason)

        return refuse
