"""Replays, in a worker: which session answers a request, and the mode in force.

    mode's file ── every POLL_S, and when told ──> the mode in place of the rules'
    request ── begin ──> its session's Follower ──> Play

The session in force is followed always. A session that requests choose (choice.py) is
followed from its first request on. If a worker follows MOST_FOLLOWED of these, it gives
up the one whose last request is the oldest, and reads it again at its next request.
"""

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec

from cutthrough.contained import is_driven
from cutthrough.exchange.work import Gate
from cutthrough.recording.match.lanes import SharedLanes, path_of
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Miss, veil
from cutthrough.recording.match.misses import Asker, Missed, MissLog
from cutthrough.recording.match.nearest import Glance
from cutthrough.recording.match.routes import Key, Route
from cutthrough.recording.model.grpc_messages import digest_of
from cutthrough.recording.play.alter import OnReplay
from cutthrough.recording.play.behind_filters import BehindFilters
from cutthrough.recording.play.follower import Failure, Follower, Hold
from cutthrough.recording.play.request import Play
from cutthrough.recording.play.shared import (
    AnswerCache,
    Arrival,
    Exchange,
    Hits,
    Shared,
    Values,
)
from cutthrough.recording.play.stubs import RequestLog, read_stubs
from cutthrough.recording.sessions.aside import aside, leave_aside
from cutthrough.recording.sessions.choice import Choice
from cutthrough.recording.sessions.directory import SUFFIX
from cutthrough.recording.sessions.modes import NAME, POLL_S, State, mark_of, read_state
from cutthrough.recording.sessions.session import SessionError

log = logging.getLogger("cutthrough")

# Modes in which nothing recorded is read; the next mode begins when all is
_PLAYS_NONE = ("off", "record")
# Between two writes of how often recordings were replayed
HITS_S = 2.0
MOST_FOLLOWED = 32
# A switch of the mode waits at most so long until answers at hand are made; an inquiry
# may take 2 s, with reading
MAKING_S = 0.25


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    directory: str
    session: str
    choice: Choice = Choice()
    program: int = 0                         # its workers share sequences
    routes: tuple[Route, ...] = ()
    speed: float = 0.0                       # of recorded times; 0: at once
    most_body: int = 4 << 20
    tells_nearest: bool = False              # to a client that missed
    on_replay: OnReplay | None = None
    plays: bool = True                       # does any rule, in the mode `rules`?


def make_route(row: Any) -> Route:
    """Returns the route of a row of `recording_routes`. Raises KeyMistake."""
    key = Key(query=row.query, ignored_query=row.ignored_query, fields=row.fields,
              body=row.body, paths=row.body_paths, regexes=row.body_regexes,
              descriptors=row.descriptors, descriptors_digest=(
                  digest_of(row.descriptors) if row.descriptors else b""),
              ignored_paths=row.ignored_paths, ignored_form=row.ignored_form,
              **dict.fromkeys(row.ignored, False))
    return Route(name=row.name, hosts=row.hosts, paths=row.paths, methods=row.methods,
                 path_regexes=row.path_regexes, key=key, after=row.after, lane=row.lane,
                 messages=row.messages,
                 refresh=row.refresh, refresh_ids=row.refresh_ids)


class Player:
    """Until `close`. `on_state` is called with each mode that comes into force.
    `answer_cache` has answers of the session in force; it is unused if requests choose
    their sessions."""

    def __init__(self, on_state: "OnState", answer_cache: AnswerCache,
                 gate: Gate | None = None, worker: int = 0) -> None:
        self._gate = gate or Gate()
        self.worker = worker                 # its number in identifiers of requests
        self._on_state = on_state
        self._answer_cache = answer_cache
        self._settings: Settings | None = None
        self._state = State()
        self._state_mark: tuple[int, ...] = (-1,)
        self._name = ""
        self._miss_log = MissLog()
        self._in_force = Follower(
            Shared(answer_cache, self._miss_log, self._gate), self._miss_log.forget)
        self._chosen: dict[str, Follower] = {}          # the last asked is the last
        self._given_up: list[Follower] = []
        self._nothing = Shared(Hits(), self._miss_log, self._gate)
        self._nothing.matcher = Matcher()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._making: asyncio.Task[None] | None = None  # of answers at hand
        self._held: dict[int, Peer] = {}
        self._lanes: SharedLanes | None = None
        self._counted = 0.0
        self._looks = asyncio.Lock()
        self._failure = Failure()
        self._is_due = False                 # a mode, until its session is read
        self._stubs = "", 0                  # their name, and how many were read
        self._request_log: RequestLog | None = None

    def set_rules(self, admits: Callable[[Asker, Glance], bool]) -> None:
        """Whether the rules let a client make a request: of the snapshot in force."""
        self._miss_log.admits = admits

    @property
    def matcher(self) -> Matcher:
        """The matcher of the session in force."""
        return self._in_force.matcher

    def configure(self, settings: Settings) -> None:
        """Raises KeyMistake if a route cannot be used, and then nothing has changed."""
        before = self._settings
        if settings == before:
            return
        Matcher(settings.routes)
        is_elsewhere = before is not None and settings.directory != before.directory
        if is_elsewhere:
            self._close_lanes()
        self._settings = settings
        shared = self._in_force.shared
        if settings.choice.is_free != (shared.answer_cache is not self._answer_cache):
            shared.answer_cache = (
                Hits() if settings.choice.is_free else self._answer_cache)
            self._answer_cache.clear()
        for follower in self._followers():
            follower.configure(settings, is_elsewhere=is_elsewhere)
        self._state_mark = (-1,)
        if self._task is None:
            self._begin_to_watch()

    def _begin_to_watch(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())
        self._task.add_done_callback(self._on_watched)

    def _on_watched(self, task: asyncio.Task[None]) -> None:
        if task is self._task and is_driven():   # an operator's code has cancelled it
            self._begin_to_watch()

    def close(self) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
        self._stop_making()
        for follower in [*self._followers(), *self._given_up]:
            follower.count_last_hits()
            follower.close()
            follower.shared.close()
        self._close_lanes()
        self._close_request_log()
        self._nothing.close()
        for peer in list(self._held.values()):
            peer.close()
        self._held.clear()

    def _followers(self) -> list[Follower]:
        return [self._in_force, *self._chosen.values()]

    # Called by the session.

    def begin(self, exchange: Exchange, request: Values, asker: tuple[str, str, bool]
              ) -> Play:
        arrival = Arrival(*request, Asker(*asker))
        if exchange.has_filters:
            exchange = BehindFilters(exchange)
        settings = self._settings
        assert settings is not None
        if not settings.choice.is_free:
            return Play(self._in_force.shared, exchange, arrival)
        try:
            name = settings.choice.of(arrival.head, arrival.asker.user)
        except SessionError as error:
            return _WithoutSession(str(error), self._nothing, exchange, arrival)
        shared = self._choose(settings, name)
        if shared is None:
            miss = Miss(f"there is no session {name!r}")
            return _WithoutSession(miss, self._nothing, exchange, arrival)
        return Play(shared, exchange, arrival)

    def _choose(self, settings: Settings, name: str) -> Shared | None:
        """None: there is no such session."""
        if name in ("", self._name):
            return self._in_force.shared
        follower = self._chosen.pop(name, None)
        if follower is None:
            # Not for each name that a client makes up
            if not (Path(settings.directory) / f"{name}{SUFFIX}").exists():
                return None
            follower = Follower(Shared(Hits(), self._miss_log, self._gate))
            follower.configure(settings, is_elsewhere=False)
            self._wanted.set()
        self._chosen[name] = follower
        if len(self._chosen) > MOST_FOLLOWED:
            self._give_up(next(iter(self._chosen)))
        return follower.shared

    def _give_up(self, name: str) -> None:
        """Follows a session no more: the answers that it has read stay."""
        self._given_up.append(self._chosen.pop(name))
        self._wanted.set()

    def hold(self, peer: "Peer") -> None:
        """The other end of a tunnel that has no origin: silent until that is closed."""
        loop = asyncio.get_running_loop()
        number = peer.fileno()

        def on_end() -> None:
            with contextlib.suppress(OSError):
                if peer.recv(4096):
                    return
            loop.remove_reader(number)
            self._held.pop(number, None)
            peer.close()

        self._held[number] = peer
        loop.add_reader(number, on_end)

    # Called for operators.

    def tell(self) -> dict[str, Any]:
        """The misses since the session came into force."""
        return {"missed": self._miss_log.missed,
                "misses": list(map(describe, self._miss_log.misses))}

    # The files.

    async def _watch(self) -> None:
        """Logs each failure, and looks again: nothing else would begin that."""
        while True:
            await self._try_look(False)
            if time.monotonic() - self._counted >= HITS_S:
                self._counted = time.monotonic()
                for follower in self._followers():
                    try:
                        await follower.count_hits()
                    except Exception:
                        log.exception("recordings: replays are not counted")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), POLL_S)
            self._wanted.clear()

    async def look(self) -> str:
        """Puts the files' content in force; returns why it cannot, or ""."""
        return "" if self._task is None else await self._try_look(True)

    async def _try_look(self, is_notified: bool) -> str:
        async with self._looks:
            try:
                await self._look(is_notified)
                self._failure.clear()
            except Exception as error:
                self._failure.note(error)
                for follower in self._followers():       # no request waits for ever
                    follower.shared.be_ready()
            return self._failure.text

    async def _look(self, is_notified: bool) -> None:
        settings = self._settings
        if settings is None:
            return
        folder = Path(settings.directory)
        mark = mark_of(folder / NAME)
        changed = mark != self._state_mark
        if is_notified and not changed:      # by files of the same time and number
            changed = read_state(folder) != self._state
        if changed:
            self._stop_making()
            state = read_state(folder)
            self._state, self._is_due = state, True
            self._name = state.session or settings.session
            self._read_stubs(folder)
            self._state_mark = mark
        is_new, failure = False, None
        try:
            is_new = await self._follow(self._in_force, settings, self._name, changed)
        except Exception as error:           # the others are followed
            failure = error
        await self._follow_chosen(settings, changed)
        if failure is not None:
            raise failure
        is_due, self._is_due = self._is_due, False
        if is_due:
            # To record, beside answers: to find nothing but these
            is_beside = self._state.mode == "record" and self._state.answers
            self._on_state("cache" if is_beside else self._state.mode)
        if is_new and self._plays(settings):
            await self._make(settings)
        if is_due:
            # Repeats of one message are not logged: of one session's, then
            message = "recordings: mode %s, session " + self._name
            if self._plays(settings):
                log.info(message + ", %d recordings", self._state.mode,
                         len(self.matcher))
            else:
                log.info(message, self._state.mode)

    async def _make(self, settings: Settings) -> None:
        """The rest is made meanwhile, or at the first use."""
        self._stop_making()
        task = self._making = asyncio.get_running_loop().create_task(
            self._in_force.prepare(settings))
        task.add_done_callback(log_failure)
        await asyncio.wait([task], timeout=MAKING_S)

    def _stop_making(self) -> None:
        if self._making is not None:
            self._making.cancel()
            self._making = None

    async def _follow(self, follower: Follower, settings: Settings, name: str,
                      anew: bool) -> bool:
        return await follower.look(settings, name, self._state.run, self._find_hold,
                                   plays=self._plays(settings), anew=anew)

    async def _follow_chosen(self, settings: Settings, anew: bool) -> None:
        """One that cannot be read is asked for in vain, and the others are not."""
        for name, follower in list(self._chosen.items()):
            try:
                await self._follow(follower, settings, name, anew)
                follower.failure.clear()
            except Exception as error:
                follower.failure.note(error)
                follower.shared.be_ready()
            if follower.is_gone and self._chosen.get(name) is follower:
                self._give_up(name)
        while self._given_up:
            follower = self._given_up.pop()
            follower.shared.be_ready()
            await follower.leave()

    def _read_stubs(self, folder: Path) -> None:
        """Reads a test's stubs: adds new stubs behind those that were read before."""
        name, count = self._stubs
        shared = self._in_force.shared
        if name != self._state.answers:
            self._close_request_log()
            name, count = self._state.answers, 0
            shared.stubs = Matcher() if name else None
            if name:
                self._request_log = RequestLog(folder, name)
                shared.log_request = self._request_log.append
        if shared.stubs is not None:
            stubs = read_stubs(folder, name)
            for stub in stubs[count:]:
                try:
                    shared.stubs.add(stub)
                except Exception as error:   # whatever it is: of this stub (R71)
                    log.error("stub %d of %s: %s", stub.number, name, error)
            count = len(stubs)
        self._stubs = name, count

    def _close_request_log(self) -> None:
        self._in_force.shared.log_request = None
        if self._request_log is not None:
            self._request_log.close()
            self._request_log = None

    def _plays(self, settings: Settings) -> bool:
        mode = self._state.mode
        return settings.plays if mode == "rules" else mode not in _PLAYS_NONE

    async def _find_hold(self) -> Hold | None:
        settings = self._settings
        if self._lanes is None and settings is not None and settings.program:
            try:
                self._lanes = await aside(
                    SharedLanes, path_of(settings.directory, settings.program))
            except (OSError, sqlite3.Error) as error:
                log.error("recordings: each worker has places of its own: %s", error)
        return None if self._lanes is None else self._lanes.hold

    def _close_lanes(self) -> None:
        if self._lanes is not None:
            self._lanes.stop()
            leave_aside(self._lanes.close)
            self._lanes = None


def log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("recordings: not all answers are at hand", exc_info=error)


def describe(entry: Missed) -> dict[str, Any]:
    nearest = entry.miss.nearest
    details = entry.miss.details
    table = {"id": entry.id, "at": entry.at_s, "method": entry.request.method,
             "url": veil(entry.request.url), "reason": entry.miss.reason,
             "differences": (details,) if details else ()}
    if nearest is not None:
        recording = nearest.recording
        table |= {"nearest": recording.number,
                  "nearest_method": recording.request.method,
                  "nearest_url": veil(recording.request.url),
                  "differences": nearest.differences}
    return table


class _WithoutSession(Play):
    """The replay of a request that chooses a session that does not exist, which is a
    miss, or a session that may not exist."""

    __slots__ = ("_why",)

    def __init__(self, why: str | Miss, shared: Shared, exchange: Exchange,
                 arrival: Arrival) -> None:
        super().__init__(shared, exchange, arrival)
        self._why = why

    def start(self) -> None:
        if isinstance(self._why, Miss):
            self.miss(self._why)
        else:
            self.refuse(self._why)


class OnState(Protocol):
    def __call__(self, mode: str, /) -> None: ...


class Peer(Protocol):
    """A socket."""

    def fileno(self) -> int: ...
    def recv(self, most: int, /) -> bytes: ...
    def close(self) -> None: ...
