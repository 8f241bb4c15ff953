"""Replays, in a worker: the recordings of the session in force, and who gets which.

    session's file ── every POLL_S: what is new ──> Matcher <── begin ── the data path
    mode's file    ── every POLL_S, and when told ──> the mode in place of the rules'

What another process has recorded is replayed after POLL_S at most, and a change that is
no addition after as long as reading the whole session takes. It is read in pieces, so
that the worker goes on meanwhile; until then what was read before counts.
"""

import asyncio
import contextlib
import logging
import sqlite3
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from cutthrough.capture.store import StoreError
from cutthrough.recording import at_hand
from cutthrough.recording.alter import OnReplay
from cutthrough.recording.keys import Key, Route
from cutthrough.recording.lanes import Lane, SharedLanes, path_of
from cutthrough.recording.matcher import Matcher
from cutthrough.recording.modes import NAME, POLL_S, State, mark_of, read_state
from cutthrough.recording.play import Answers, Exchange, Missed, Play, Shared
from cutthrough.recording.sessions import SUFFIX, Session, Sessions

log = logging.getLogger("cutthrough")

# Modes in which nothing recorded is read; the next mode begins when all is
_PLAYS_NONE = ("off", "record")
# Recordings that are read at a time at most: some 5 ms
STEP = 100
# Between two writes of how often recordings were replayed
HITS_S = 2.0


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    session: str
    program: int = 0                         # with whose workers sequences are shared
    routes: tuple[Route, ...] = ()
    speed: float = 0.0                       # of recorded times; 0: at once
    most_body: int = 4 << 20
    on_replay: OnReplay | None = None
    plays: bool = True                       # does any rule, in the mode `rules`?


def make_route(row: Any) -> Route:
    """Of a row of `recording_routes`. Raises KeyMistake."""
    key = Key(query=row.query, ignored_query=row.ignored_query, fields=row.fields,
              body=row.body, paths=row.body_paths, regexes=row.body_regexes,
              ignored_paths=row.ignored_paths, ignored_form=row.ignored_form)
    return Route(name=row.name, hosts=row.hosts, paths=row.paths, methods=row.methods,
                 key=key, after=row.after, lane=row.lane,
                 refresh=row.refresh, refresh_ids=row.refresh_ids)


class Player:
    """Until `close`. `on_state` is called with each mode that comes into force."""

    def __init__(self, on_state: "OnState", answers: Answers) -> None:
        self._on_state = on_state
        self._answers = answers
        self._settings: Settings | None = None
        self._state = State()
        self._state_mark: tuple[int, ...] = (-1,)
        self._session: Session | None = None
        self._session_mark: tuple[int, ...] = (-1,)
        self._name = ""
        self._last = self._version = self._edits = 0
        self._loaded = Matcher()
        self._task: asyncio.Task[None] | None = None
        self._held: dict[int, Far] = {}
        self._lanes: SharedLanes | None = None
        self._run = ""
        self._counted = 0.0
        self._counted_in: tuple[Path, tuple[int, ...]] = (Path(), ())
        self._looks = asyncio.Lock()
        self._failed = ""
        self.shared = Shared(answers)
        self.matcher = self._loaded

    def configure(self, settings: Settings) -> None:
        """Raises KeyMistake if a route cannot be used, and then nothing has changed."""
        if settings == self._settings:
            return
        Matcher(settings.routes)
        if self._settings is not None and (
                settings.directory != self._settings.directory):
            self._loaded = self.matcher = self.shared.matcher = Matcher(settings.routes)
            self._close_lanes()
        self._settings = settings
        self.shared.speed = settings.speed
        self.shared.most_body = settings.most_body
        self.shared.on_replay = settings.on_replay
        self._answers.clear()
        self._state_mark = self._session_mark = (-1,)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._watch())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if hits := self._answers.take_hits():
            write_hits(*self._counted_in, hits)
        self._close_session()
        self._close_lanes()
        self.shared.close()
        for far in list(self._held.values()):
            far.close()
        self._held.clear()

    # Called by the session.

    def begin(self, exchange: Exchange, mode: int, head: bytes, host: str, port: int,
              scheme: str, minor: int, has_body: bool, offers: bool, client: str
              ) -> Play:
        return Play(self.shared, exchange, mode, head, host, port, scheme, minor,
                    has_body, offers)

    def hold(self, far: "Far") -> None:
        """The other end of a tunnel that has no origin: silent until that is closed."""
        loop = asyncio.get_running_loop()
        number = far.fileno()

        def on_end() -> None:
            with contextlib.suppress(OSError):
                if far.recv(4096):
                    return
            loop.remove_reader(number)
            self._held.pop(number, None)
            far.close()

        self._held[number] = far
        loop.add_reader(number, on_end)

    # Called for operators.

    def tell(self) -> dict[str, Any]:
        """What was missed since the session came into force."""
        shared = self.shared
        return {"missed": shared.missed,
                "misses": list(map(describe, shared.misses))}

    # The files.

    async def _watch(self) -> None:
        while True:
            await self._try_look(False)
            if time.monotonic() - self._counted >= HITS_S:
                await self._count_hits()
            await asyncio.sleep(POLL_S)

    async def look(self) -> str:
        """Has what the files have come into force; returns why it cannot, or ""."""
        return "" if self._task is None else await self._try_look(True)

    async def _try_look(self, is_told: bool) -> str:
        async with self._looks:
            try:
                await self._look(is_told)
                self._failed = ""
            except (OSError, ValueError, StoreError) as error:
                if self._failed != str(error):
                    self._failed = str(error)
                    log.error("recordings: %s", error)
                self.shared.be_ready()
            return self._failed

    async def _look(self, is_told: bool) -> None:
        settings = self._settings
        if settings is None:
            return
        folder = Path(settings.directory)
        mark = mark_of(folder / NAME)
        changed, was_other = mark != self._state_mark, False
        if is_told and not changed:          # by files of the same time and number
            changed = read_state(folder) != self._state
        if changed:
            state = read_state(folder)
            self._state_mark, self._state = mark, state
            name = state.session or settings.session
            self._name, was_other = name, name != self._name
        path = folder / f"{self._name}{SUFFIX}"
        found = mark_of(path)[:1]
        is_new = changed or found != self._session_mark
        plays = self._plays(settings)
        if is_new:
            if was_other or self._session_mark not in ((), found):
                self.shared.forget()
            await self._count_hits()
            self._close_session()
            self._session_mark = found
            if not plays:                    # what is under way has what was read
                self._answers.clear()
                self.shared.be_ready()
            elif found:
                self._open_lanes(settings)
                self._session = Sessions(folder).open(self._name)
                self._counted_in = path, found
                await self._load(settings)
            else:
                self._loaded = Matcher(settings.routes)
                self._take()
        elif self._session is not None:
            await self._read_changes(settings)
        if changed:
            self._on_state(self._state.mode)
        if is_new:
            await self._prepare(settings)
        if changed:
            # Repeats of one message are not logged: of one session's, then
            told = "recordings: mode %s, session " + self._name
            if plays:
                log.info(told + ", %d recordings", self._state.mode, len(self.matcher))
            else:
                log.info(told, self._state.mode)

    def _plays(self, settings: Settings) -> bool:
        mode = self._state.mode
        return settings.plays if mode == "rules" else mode not in _PLAYS_NONE

    async def _prepare(self, settings: Settings) -> None:
        matcher = self.matcher
        if (not self._plays(settings) or settings.speed
                or settings.on_replay is not None):
            return
        numbers = matcher.numbers()
        for at in range(0, len(numbers), STEP):
            if self.matcher is not matcher or self._settings is not settings:
                return
            if not at_hand.prepare(matcher, numbers[at:at + STEP], self._answers):
                return
            await asyncio.sleep(0)

    def _open_lanes(self, settings: Settings) -> None:
        if self._lanes is not None or not settings.program:
            return
        try:
            self._lanes = SharedLanes(path_of(settings.directory, settings.program))
        except (OSError, sqlite3.Error) as error:
            log.error("recordings: each worker has places of its own: %s", error)

    def _close_lanes(self) -> None:
        if self._lanes is not None:
            self._lanes.close()
            self._lanes = None

    def _hold(self, lane: str, sequences: list[int]) -> AbstractContextManager[Lane]:
        assert self._lanes is not None
        return self._lanes.hold(self._run, lane, sequences)

    async def _load(self, settings: Settings) -> None:
        """Reads the whole session; what was read before counts until the end."""
        session = self._session
        assert session is not None
        self._version, self._last = session.version(), 0
        self._edits = session.edits()
        # Sequences begin anew with each of these
        self._run = f"{self._name} {session.manifest.created_us} {self._state.run}"
        self._loaded = Matcher(settings.routes, session.masker.request,
                               None if self._lanes is None else self._hold)
        while await self._read_more(session):
            pass
        self._take()

    async def _read_changes(self, settings: Settings) -> None:
        session = self._session
        assert session is not None
        version = session.version()
        if version == self._version:
            return
        self._version = version
        while await self._read_more(session):
            pass
        self._see_fields()
        oldest = session.oldest()
        if session.edits() != self._edits:
            await self._load(settings)
        elif self._loaded.remove_below(self._last + 1 if oldest is None else oldest):
            self._answers.clear()

    async def _read_more(self, session: Session) -> bool:
        found = session.read_behind(self._last, STEP)
        changes = False
        for one in found:
            self._last = one.number
            try:
                changes |= self._loaded.add(one)
            except ValueError as error:      # a pattern that cannot be used
                log.error("recording %d: %s", one.number, error)
        if changes and self._loaded is self.matcher:
            self._answers.clear()
        await asyncio.sleep(0)
        return found != []

    def _take(self) -> None:
        self.matcher = self.shared.matcher = self._loaded
        self._answers.clear()
        self._answers.take_hits()            # numbers of what was read before
        if self._session is not None:
            self.shared.mask = self._session.masker.message
        self._see_fields()
        self.shared.be_ready()

    def _see_fields(self) -> None:
        """Do fields of requests count?"""
        settings = self._settings
        assert settings is not None
        wants = self._loaded.has_patterns or any(
            route.lane or route.key.fields for route in settings.routes)
        self.shared.wants_fields = self._answers.by_fields = wants

    async def _count_hits(self) -> None:
        """What was replayed is in the session's file some time later."""
        self._counted = time.monotonic()
        if self._session is not None and (hits := self._answers.take_hits()):
            await asyncio.to_thread(write_hits, *self._counted_in, hits)

    def _close_session(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


def write_hits(path: Path, mark: tuple[int, ...], hits: dict[int, int]) -> None:
    """Into this file, if it has this mark still. Takes 130 ms for 20 000, and waits for
    other programs that write there."""
    with contextlib.suppress(OSError, ValueError, StoreError):   # it may be read only
        if mark_of(path)[:1] == mark:
            session = Sessions(path.parent).open(path.name.removesuffix(SUFFIX))
            with contextlib.closing(session):
                session.hit(hits)


def describe(one: Missed) -> dict[str, Any]:
    nearest = one.miss.nearest
    found = {"at": one.at_s, "method": one.request.method, "url": one.request.url,
             "reason": one.miss.reason, "differences": ()}
    if nearest is not None:
        asked = nearest.recording
        found |= {"nearest": asked.number, "nearest_method": asked.request.method,
                  "nearest_url": asked.request.url, "differences": nearest.differences}
    return found


class OnState(Protocol):
    def __call__(self, mode: str, /) -> None: ...


class Far(Protocol):
    """A socket."""

    def fileno(self) -> int: ...
    def recv(self, most: int, /) -> bytes: ...
    def close(self) -> None: ...
