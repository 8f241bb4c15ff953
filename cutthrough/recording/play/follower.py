"""One session, as a worker replays it: its file, followed while others write.

    session's file ── look: new rows ──> Matcher <── Play

A recording of another process is replayed after the next look, and a change other than
an addition counts when the whole session has been read. The session is read in pieces,
so the worker goes on meanwhile; until then the earlier rows count.

All work on the file is done in a thread, because its disk may be slow, and another
program may have locked it (R64).
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar, cast

from cutthrough.exchange.failures import reason_of
from cutthrough.exchange.work import Busy, Unread
from cutthrough.recording.match import reading as apart
from cutthrough.recording.match.lanes import Lane
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Reading
from cutthrough.recording.match.routes import Route
from cutthrough.recording.model.ranges import can_be_sent
from cutthrough.recording.model.recording import Recording, Request
from cutthrough.recording.play import beforehand
from cutthrough.recording.play.alter import OnReplay
from cutthrough.recording.play.shared import Shared
from cutthrough.recording.sessions.directory import SUFFIX, Session, Sessions
from cutthrough.recording.sessions.modes import mark_of
from cutthrough.storage.store import StoreError

log = logging.getLogger("cutthrough")

# Most recordings of one read: some 5 ms
STEP = 100
T = TypeVar("T")
# After so long other work of the worker has its turn
TURN_S = 0.005
OURSELVES = "the session"                    # as an asker; a user's name has no blank
Hold = Callable[[str, str, list[int]], AbstractContextManager[Lane]]
FindHold = Callable[[], Awaitable[Hold | None]]


class Rules(Protocol):
    """The settings of a replay: the common parts of requests, and how requests are
    answered."""

    @property
    def directory(self) -> str: ...
    @property
    def routes(self) -> tuple[Route, ...]: ...
    @property
    def speed(self) -> float: ...
    @property
    def most_body(self) -> int: ...
    @property
    def tells_nearest(self) -> bool: ...
    @property
    def on_replay(self) -> OnReplay | None: ...


class Failure:
    """An error that lasts is logged once."""

    def __init__(self) -> None:
        self.text = ""                       # of the last one; "": it is over

    def note(self, error: Exception) -> None:
        text = str(error) or type(error).__name__
        if self.text != text:
            self.text = text
            log.error("recordings: %s", text, exc_info=None if isinstance(
                error, OSError | ValueError | StoreError) else error)

    def clear(self) -> None:
        self.text = ""


class Follower:
    """Until `close`. `shared` belongs to its Plays."""

    def __init__(self, shared: Shared, on_other: Callable[[], None] | None = None
                 ) -> None:
        """`on_other` is called when another file takes the place of the last file."""
        self.shared = shared
        self._on_other = on_other
        self.failure = Failure()
        self._rules: Rules | None = None
        self._loaded = Matcher()
        self._packed = b""                   # its rules, for other processes
        self._session: Session | None = None
        self._mark: tuple[int, ...] = (-1,)
        self._is_whole = False               # the file of this mark was read
        self._name = ""
        self._last = self._version = self._edits = self._run = 0
        self._counted_in: tuple[Path, tuple[int, ...]] = (Path(), ())
        self._in_use = threading.Lock()      # the session is, by a thread

    @property
    def matcher(self) -> Matcher:
        matcher = self.shared.matcher
        return self._loaded if matcher is None else matcher

    @property
    def is_gone(self) -> bool:
        """Was the session's file missing at the last look?"""
        return self._mark == ()

    def configure(self, rules: Rules, *, is_elsewhere: bool) -> None:
        """All is read again. `is_elsewhere`: the directory has changed."""
        if is_elsewhere:
            self._loaded = self.shared.matcher = Matcher(rules.routes)
            self.shared.rules = apart.pack_rules(rules.routes, None, b"")
        self._rules = rules
        self.shared.speed = rules.speed
        self.shared.most_body = rules.most_body
        self.shared.tells_nearest = rules.tells_nearest
        self.shared.on_replay = rules.on_replay
        self.shared.answer_cache.clear()
        self._mark = (-1,)

    async def look(self, rules: Rules, name: str, run: int, find_places: FindHold, *,
                   plays: bool, anew: bool) -> bool:
        """Takes the rows of session `name`. `anew`: all of it; sequences begin
        again if `run` differs. `find_places` opens the processes' shared places.
        Returns whether all was read. If it raises, such as OSError, ValueError or
        StoreError, the next look tries again, and the earlier rows count."""
        path = Path(rules.directory) / f"{name}{SUFFIX}"
        mark = mark_of(path)[:1]
        if not anew and mark == self._mark and self._is_whole:
            if self._session is not None:
                await self._read_changes(rules, find_places)
            return False
        if self._on_other is not None and (
                name != self._name or self._mark not in ((), mark)):
            self._on_other()
        self._is_whole = False
        await self.leave()
        self._name, self._mark, self._run = name, mark, run
        if not plays and self.shared.stubs is None:
            self.shared.answer_cache.clear()      # Plays under way have their own
            self.shared.be_ready()
        elif mark and plays:
            self._session = await self._aside(open_session, rules.directory, name)
            await self._load(rules, find_places)
            self._counted_in = path, mark
        else:
            self._packed = apart.pack_rules(rules.routes, None, b"")
            self._loaded = Matcher(rules.routes)
            if mark:
                session = await self._aside(open_session, rules.directory, name)
                self._packed = apart.pack_rules(
                    rules.routes, session.manifest.redaction, session.key)
                self._loaded = Matcher(rules.routes, session.masker.request,
                                       reads_bodies=session.masker.reads_bodies)
                await self._aside(session.close)
            self._take(rules)
        self._is_whole = True
        return True

    async def prepare(self, rules: Rules) -> None:
        """Has answers at hand, as far as there is room and the file stays the same."""
        matcher = self.matcher
        if not self.shared.caches_answers or rules.speed or rules.on_replay is not None:
            return
        numbers = matcher.numbers()
        for at in range(0, len(numbers), STEP):
            if self.matcher is not matcher or self._rules is not rules:
                return
            if not beforehand.prepare(
                    matcher, numbers[at:at + STEP], self.shared.answer_cache):
                return
            await asyncio.sleep(0)

    async def _load(self, rules: Rules, find_places: FindHold) -> None:
        """Reads the whole session; until then the earlier rows count. Rows that are
        added meanwhile are read after the next look: they may come faster than this
        reads."""
        session = self._session
        assert session is not None
        version, edits, (_, newest) = await self._aside(
            lambda: (session.version(), session.edits(), session.span()))
        self._last = 0
        run = f"{self._name} {session.manifest.created_us} {self._run}"

        shared = await find_places()
        self._packed = apart.pack_rules(
            rules.routes, session.manifest.redaction, session.key)
        self._loaded = Matcher(rules.routes, session.masker.request,
                               None if shared is None else partial(shared, run),
                               reads_bodies=session.masker.reads_bodies)
        while self._last < newest and await self._read_more(session):
            pass
        self._take(rules)
        self._version, self._edits = version, edits

    async def _read_changes(self, rules: Rules, find_places: FindHold) -> None:
        session = self._session
        assert session is not None
        if self.shared.stubs is not None:    # a test is answered with what there was,
            return                           # and not with what it records
        version = await self._aside(session.version)
        if version == self._version:
            return
        (oldest, newest), edits = await self._aside(
            lambda: (session.span(), session.edits()))
        while self._last < newest and await self._read_more(session):
            pass
        self._see_fields(rules)
        if edits != self._edits:
            await self._load(rules, find_places)
            return
        if self._loaded.remove_below(oldest or self._last + 1):
            self.shared.answer_cache.clear()
        self._version = version

    async def _read_more(self, session: Session) -> bool:
        recordings = await self._aside(session.read_behind, self._last, STEP)
        loaded, turn = self._loaded, time.monotonic()
        for recording in recordings:
            self._last = recording.number
            try:
                check_status(recording)
                changes = loaded.add(
                    recording, await self._read_apart(recording.request))
            except (ValueError, Busy, Unread) as error:
                # A pattern cannot be used, or a body takes too long
                log.error("recording %d: %s", recording.number,
                          error or "it is not read")
                continue
            except Exception as error:       # whatever it is: of this recording (R71)
                log.error("recording %d: %s", recording.number, reason_of(error))
                continue
            if changes and loaded is self.matcher:
                self.shared.answer_cache.clear()
            if time.monotonic() - turn > TURN_S:
                await asyncio.sleep(0)
                turn = time.monotonic()
        await asyncio.sleep(0)
        return recordings != []

    async def _read_apart(self, request: Request) -> Reading | None:
        """None if it is read in the loop. Raises Busy and Unread."""
        gate = self.shared.gate
        if not gate.is_apart or not self._loaded.is_costly(request, recorded=True):
            return None
        return cast(Reading, (await gate.run(
            OURSELVES, apart.read, self._packed, request, True))[1])

    def _take(self, rules: Rules) -> None:
        self.shared.matcher, self.shared.rules = self._loaded, self._packed
        self.shared.answer_cache.clear()
        self.shared.answer_cache.take_hits()      # numbers of the earlier rows
        if self._session is not None:
            self.shared.mask = self._session.masker.messages
        self._see_fields(rules)
        self.shared.be_ready()

    def _see_fields(self, rules: Rules) -> None:
        """Do fields of requests count?"""
        wants = self._loaded.reads_fields or any(
            route.lane or route.key.fields for route in rules.routes)
        self.shared.wants_fields = self.shared.answer_cache.by_fields = wants

    async def count_hits(self) -> None:
        """Replays are in the session's file some time later."""
        if self._session is not None and (hits := self.shared.answer_cache.take_hits()):
            await asyncio.to_thread(write_hits, *self._counted_in, hits)

    async def leave(self) -> None:
        """The file, after hits were counted in it; the rows stay."""
        await self.count_hits()
        if (session := self._session) is not None:
            self._session = None
            await self._aside(session.close)

    async def _aside(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.to_thread(self._use, work, *arguments)

    def _use(self, work: Callable[..., T], *arguments: object) -> T:
        with self._in_use:
            return work(*arguments)

    def count_last_hits(self) -> None:
        if hits := self.shared.answer_cache.take_hits():
            write_hits(*self._counted_in, hits)

    def close(self) -> None:
        """As `leave`, when the worker ends."""
        if self._session is not None:
            self._use(self._session.close)
            self._session = None


def check_status(recording: Recording) -> None:
    """Raises ValueError."""
    response = recording.response
    if not can_be_sent(response):
        raise ValueError(
            f"no client takes the status {response.status!r:.20} as an answer")


def open_session(directory: str, name: str) -> Session:
    return Sessions(directory).open(name)


def write_hits(path: Path, mark: tuple[int, ...], hits: dict[int, int]) -> None:
    """Into this file, if it has this mark still. Takes 10 ms for 20 000, and waits for
    other programs writing there."""
    with contextlib.suppress(OSError, ValueError, StoreError):   # it may be read only
        if mark_of(path)[:1] == mark:
            session = Sessions(path.parent).open(path.name.removesuffix(SUFFIX))
            with contextlib.closing(session):
                session.hit(hits)
