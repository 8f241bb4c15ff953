"""Recordings of exchanges that rules record, in files: each in the session it is of.

    exchanges ──> the session in force, or that of the request ──> its SessionWriter

The session in force is read from the mode's file for each batch.
"""

import contextlib
import logging
import time
from collections import Counter
from pathlib import Path

from cutthrough.exchange.failures import Failures
from cutthrough.recording.record.conversion import Converter
from cutthrough.recording.record.session_writer import (
    SessionWriter,
    TooManySessions,
    count_fitting,
)
from cutthrough.recording.sessions.choice import Choice
from cutthrough.recording.sessions.directory import SUFFIX
from cutthrough.recording.sessions.modes import InForce
from cutthrough.recording.sessions.offsets import Offset
from cutthrough.recording.sessions.retention import Retention
from cutthrough.recording.sessions.session import SessionError
from cutthrough.storage.settings import Recordings
from cutthrough.tape.ring_exchange import RingExchange

log = logging.getLogger("cutthrough")

# Files that are open, the last used ones
MOST_OPEN = 32
# For files that are locked when the writer ends
END_S = 5.0
# Files of a directory in which requests may make a new one
MOST_SESSIONS = 1000


class Recorder:
    def __init__(self, settings: Recordings, failures: Failures | None = None
                 ) -> None:
        """`failures`: counts exchanges that fail for a reason of this program."""
        self._settings = settings
        self._choice = Choice(settings.session_field, settings.session_user)
        self._converter = Converter(settings.hooks, settings.cuts, failures)
        self._retention = Retention(settings.directory)
        self._writers: dict[str, SessionWriter] = {}    # the last used is the last
        self._in_force = InForce(settings.directory, settings.session)
        self._lost = 0

    def write(self, exchanges: list[RingExchange], offset: Offset | None = None) -> int:
        """Returns how many could not be written. `offset`: of their ring, if they
        are all before it."""
        if not self._choice.is_free:
            return self.writer_of().write(exchanges, offset) + self._cut()
        groups: dict[str, list[RingExchange]] = {}
        for exchange in exchanges:
            try:
                name = self._choice.of(exchange.up_head, exchange.user)
                groups.setdefault(name, []).append(exchange)
            except SessionError as error:
                self._converter.leave_out(exchange, error)
        lost = sum(self.writer_of(name).write(group, offset)
                   for name, group in groups.items())
        return lost + self._cut()

    def _cut(self) -> int:
        """All writers together may hold as many waiting recordings as one."""
        waiting = [recording for writer in self._writers.values()
                   for recording in writer.waiting]
        if not waiting:
            return 0
        left = fitting = count_fitting(waiting)
        for writer in self._writers.values():
            del writer.waiting[left:]
            left -= len(writer.waiting)
        return len(waiting) - fitting

    def writer_of(self, name: str = "") -> SessionWriter:
        """`name`: a session's; "": that of the session in force."""
        is_chosen = name != ""
        name = name or self._in_force.read()
        writer = self._writers.pop(name, None)
        if writer is None:
            if len(self._writers) >= MOST_OPEN:
                self._drop()
            writer = SessionWriter(name, self._settings, self._converter,
                                   self._check_number if is_chosen else _may_always)
        self._writers[name] = writer
        return writer

    def _drop(self) -> None:
        """The writer that was used longest ago, of those without waiting recordings."""
        name = next((name for name, writer in self._writers.items()
                     if not writer.waiting), next(iter(self._writers)))
        dropped = self._writers.pop(name)
        self._lost += len(dropped.waiting)
        dropped.close()

    def _check_number(self) -> None:
        directory = Path(self._settings.directory)
        if sum(1 for _ in directory.glob(f"*{SUFFIX}")) >= MOST_SESSIONS:
            raise TooManySessions(f"{directory} has {MOST_SESSIONS} sessions, and "
                                  "requests make no more")

    def take_lost(self) -> int:
        """How many were lost since the last call, beside those that `write` returns."""
        lost, self._lost = self._lost, 0
        return lost

    @property
    def fails(self) -> bool:
        """Some recordings wait until they can be written: of the session in force, or
        of any if requests choose."""
        return any(writer.waiting for name, writer in self._writers.items()
                   if self._choice.is_free or name == self._in_force.name)

    def checkpoint(self) -> None:
        """Between two batches: SQLite's WAL goes to the file, if it is long."""
        for writer in self._writers.values():
            writer.checkpoint()

    def on_idle(self) -> None:
        """When nothing is to be written."""
        for writer in self._writers.values():
            writer.on_idle()
        with contextlib.suppress(OSError):
            self._retention.prune()

    @property
    def waiting(self) -> int:
        """How many wait until they can be written."""
        return sum(len(writer.waiting) for writer in self._writers.values())

    @property
    def slow_paths(self) -> Counter[str]:
        """How many exchanges became Recordings before they became rows, by reason."""
        return self._converter.slow_paths

    def close(self) -> int:
        """Returns how many are lost; it has been logged."""
        until = time.monotonic() + END_S
        if slow_paths := self.slow_paths:
            log.debug("recordings by the slow path: %s", ", ".join(
                f"{reason} ({count})" for reason, count in slow_paths.most_common()))
        return self.take_lost() + sum(
            writer.finish(until) for writer in self._writers.values())


def _may_always() -> None: ...
