"""The recorder of sessions that several hosts have in a database.

    writer ── put ──> waiting ── thread ──> PostgreSQL ── thread ──> the copy here

A thread asks the database, so that captures go on whatever the network does. What it
cannot send waits, within the bounds of any recorder; the writer waits for room as long
as the database takes what it gets, for ROOM_S. What waits when the writer is killed is
lost. The session in force is copied also if nothing is recorded: workers replay copies.
If requests choose their sessions, all of the database are copied (chosen_copies).
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable
from operator import itemgetter

from cutthrough.exchange.failures import Failures
from cutthrough.recording.model.recorded_heads import HeadCache
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.record.conversion import Converter
from cutthrough.recording.record.recorder import MOST_SESSIONS
from cutthrough.recording.record.session_writer import (
    AGAIN_S,
    PRUNE_S,
    TooManySessions,
    count_fitting,
    manifest_of,
)
from cutthrough.recording.sessions.choice import Choice
from cutthrough.recording.sessions.chosen_copies import ChosenCopies
from cutthrough.recording.sessions.copies import Copy, drop_copy, open_copy
from cutthrough.recording.sessions.modes import InForce
from cutthrough.recording.sessions.postgres import PostgresSession, PostgresSessions
from cutthrough.recording.sessions.session import NoSession, SessionError
from cutthrough.storage.settings import Recordings
from cutthrough.storage.store import NotNow, StoreAway, StoreError
from cutthrough.tape.ring_exchange import RingExchange

log = logging.getLogger("cutthrough")

# Between two questions for changes
POLL_S = 0.2
# How long the writer waits for room
ROOM_S = 1.0
# Between two reports of how often recordings were replayed here
HITS_S = 2.0
# Steps of a copy between two looks for recordings to send
STEPS = 5
# For the last answer when the writer ends
END_S = 9.0


class _Ending(Exception):
    """A copy is not made now: the writer ends, or another session is in force."""


class SharedRecorder:
    def __init__(self, settings: Recordings, failures: Failures | None = None
                 ) -> None:
        """`failures`: as of Recorder."""
        self._settings = settings
        self._converter = Converter(settings.hooks, settings.cuts, failures)
        self._choice = Choice(settings.session_field, settings.session_user)
        self._name = self._failed = ""
        self._in_force = InForce(settings.directory, settings.session)
        # For the fields of both threads: _failed, and the next four
        self._there = threading.Condition()
        self._closing = False
        # Of which session each is: another may be in force when it is sent
        self._queue: list[tuple[str, Recording]] = []
        self._sending: list[tuple[str, Recording]] = []
        self._lost = 0
        self._is_full = False                # since the queue was empty last
        self._sessions: PostgresSessions | None = None
        self._opened: dict[str, PostgresSession] = {}
        self._copy: Copy | None = None                   # of the one in force
        self._chosen = ChosenCopies(settings.directory, self._send_meanwhile)
        self._not_copied: Exception | None = None
        self._not_sent: Exception | None = None
        self._counted = self._pruned = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    # In the writer's thread.

    def write(self, exchanges: list[RingExchange],
              may_wait: Callable[[int], bool] | None = None) -> int:
        """Returns how many are lost. `may_wait` is asked before so many wait here: if
        the process is killed then, nobody knows which of them were sent."""
        heads: HeadCache = {}
        recordings = []
        for exchange in exchanges:
            try:
                name = self._choice.of(
                    exchange.up_head, exchange.user) if self._choice.is_free else ""
            except SessionError as error:
                self._converter.leave_out(exchange, error)
                continue
            if recording := self._converter.convert(exchange, heads):
                recordings.append((name, recording))
        if recordings and may_wait is not None and not may_wait(len(recordings)):
            return 0
        return self._put(recordings) if recordings else 0

    def _put(self, recordings: list[tuple[str, Recording]]) -> int:
        """Each with the session that its request chose; "": that in force."""
        in_force = self._in_force.read()
        waiting = [(name or in_force, recording) for name, recording in recordings]
        until = time.monotonic() + ROOM_S
        with self._there:
            while waiting:
                room = self._count_fitting(self._queue + waiting) - len(self._queue)
                self._queue += waiting[:max(room, 0)]
                del waiting[:max(room, 0)]
                self._there.notify_all()
                left = until - time.monotonic()
                if not waiting or not self._queue or self._failed or left <= 0:
                    break
                self._there.wait(left)
            self._queue += waiting
            self._cut_queue()
        return self.take_lost()

    def take_lost(self) -> int:
        with self._there:
            lost, self._lost = self._lost, 0
        return lost

    def _cut_queue(self) -> None:
        fitting = self._count_fitting(self._queue)
        if fitting == len(self._queue):
            return
        if not (self._is_full or self._failed):
            log.error("recordings are dropped and counted: too many wait for the "
                      "database")
        self._is_full = True
        self._lost += len(self._queue) - fitting
        del self._queue[fitting:]

    @staticmethod
    def _count_fitting(queue: list[tuple[str, Recording]]) -> int:
        return count_fitting(recording for _, recording in queue)

    @property
    def fails(self) -> bool:
        return self._failed != "" and (self._queue or self._sending) != []

    def on_idle(self) -> None: ...

    @property
    def waiting(self) -> int:
        """How many wait until they are sent."""
        return len(self._queue) + len(self._sending)

    def close(self) -> int:
        """Returns how many are lost; it has been logged."""
        with self._there:
            self._closing = True
            self._there.notify_all()
        self._thread.join(END_S)
        with self._there:
            left = self.waiting
            self._queue, self._sending = [], []
        if left:
            log.error("%d recordings are lost: %s", left, self._failed or "no answer")
        return left + self.take_lost()

    # In the thread that asks the database.

    def _run(self) -> None:
        while True:
            with self._there:
                if self._failed and not self._closing:
                    self._there.wait_for(lambda: self._closing, AGAIN_S)
                elif not self._queue and not self._closing:
                    self._there.wait(POLL_S)
                is_last = self._closing
            self._work()
            if is_last and (self._failed or not self._queue):
                break
        self._leave()
        if self._sessions is not None:
            self._sessions.close()

    def _work(self) -> None:
        try:
            name = self._in_force.read()
            if name != self._name:
                self._leave()
                self._name = name
            self._send_queue()
        except Exception as error:           # the thread goes on, whatever it is
            self._leave()
            self._wait_with(error)
            return
        try:
            self._follow()
            if self._choice.is_free:
                self._follow_chosen()
            self._keep_house()
            if self._not_copied:
                log.warning("recordings: sessions of the database are copied again")
            self._not_copied = None
        except Exception as error:
            self._leave()
            if is_news(error, self._not_copied) and not isinstance(
                    error, NoSession | _Ending):
                log.error("recordings: %s; what is in the directory is replayed", error)
                self._not_copied = error

    def _open(self, name: str) -> PostgresSession:
        """Raises NoSession, StoreError and OSError."""
        if self._sessions is None:
            self._sessions = PostgresSessions(
                self._settings.url, self._settings.directory)
        if name not in self._opened:
            self._opened[name] = self._sessions.open(name)
        return self._opened[name]

    def _make(self, name: str) -> PostgresSession:
        """Raises TooManySessions, too."""
        try:
            return self._open(name)
        except NoSession:
            assert self._sessions is not None
            if name != self._name and len(self._sessions.heads()) >= MOST_SESSIONS:
                raise TooManySessions(f"the database has {MOST_SESSIONS} sessions, and "
                                      "requests make no more") from None
            self._opened[name] = self._sessions.create(
                name, manifest_of(self._settings))
            return self._opened[name]

    def _send_queue(self) -> None:
        """In the order of each session, and each at once."""
        with self._there:
            self._sending = sorted(self._queue, key=itemgetter(0))
            self._queue = []
            self._is_full &= self._sending != []
            self._there.notify_all()
        for name, group in itertools.groupby(self._sending[:], itemgetter(0)):
            self._send(name, [recording for _, recording in group])

    def _send_meanwhile(self) -> None:
        """Between two steps of a copy that is being made: the recordings of minutes
        have no room. Raises _Ending, and what keeps them from being sent."""
        try:
            self._send_queue()
        except Exception as error:
            self._wait_with(error)
            raise
        if self._closing or self._in_force.read() != self._name:
            raise _Ending

    def _send(self, name: str, recordings: list[Recording]) -> None:
        try:
            session = self._make(name)
            try:
                session.put(recordings)
            except NoSession:                # it was deleted since it was opened
                self._opened.pop(name, None)
                self._make(name).put(recordings)
        except TooManySessions as error:
            self._lose(recordings, error)
        except (NotNow, OSError):
            raise
        except Exception as error:
            if name not in self._opened and isinstance(error, StoreError):
                raise                        # it would be so for all of them
            self._send_alone(name, recordings)
        with self._there:
            del self._sending[:len(recordings)]
            if self._failed:
                log.warning("recordings are written again")
            self._not_sent, self._failed = None, ""

    def _send_alone(self, name: str, recordings: list[Recording]) -> None:
        """One of them is the reason why they cannot be sent together (R71)."""
        for recording in recordings:
            try:
                self._make(name).put([recording])
            except (NotNow, OSError):
                raise
            except Exception as error:
                self._converter.failures.add(error)

    def _lose(self, recordings: list[Recording], error: Exception) -> None:
        log.error("%d recordings are lost: %s", len(recordings), error)
        with self._there:
            self._lost += len(recordings)

    def _wait_with(self, error: Exception) -> None:
        """Unsent recordings wait again, before all others."""
        with self._there:
            self._queue, self._sending = self._sending + self._queue, []
            self._cut_queue()
            if is_news(error, self._not_sent):
                log.error("recordings cannot be written: %s", error)
            self._not_sent, self._failed = error, str(error)
            self._there.notify_all()

    def _follow(self) -> None:
        """Brings the copy nearer to the session in force."""
        try:
            shared = self._open(self._name)
        except NoSession:
            self._leave()
            drop_copy(self._settings.directory, self._name)
            return
        if self._copy is None:
            self._copy = open_copy(self._settings.directory, self._name, shared,
                                   self._send_meanwhile)
        for _ in range(STEPS):
            if not self._copy.follow(shared):
                break
        if self._is_due():
            self._copy.tell_hits(shared)

    def _is_due(self) -> bool:
        """Is it time to report hits?"""
        return self._closing or time.monotonic() - self._counted >= HITS_S

    def _follow_chosen(self) -> None:
        assert self._sessions is not None
        self._chosen.follow(self._sessions, self._name)
        if self._is_due():
            self._chosen.tell_hits(self._sessions)

    def _keep_house(self) -> None:
        now = time.monotonic()
        if self._is_due():
            self._counted = now
        if now - self._pruned >= PRUNE_S:
            self._pruned = now
            assert self._sessions is not None
            self._sessions.prune()
            self._opened.clear()             # their bounds may be others

    def _leave(self) -> None:
        if self._copy is not None:
            self._copy.close()
        self._copy = None
        self._opened.clear()


def is_news(error: Exception, before: Exception | None) -> bool:
    """A server that is away says so in several ways."""
    return str(error) != str(before) and not (
        isinstance(error, StoreAway) and isinstance(before, StoreAway))
