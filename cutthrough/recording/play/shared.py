"""The common parts of all replays of a session, and its calls for each of them."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeAlias

from cutthrough.contained import Begun
from cutthrough.exchange.work import Gate
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.misses import Asker, MissLog
from cutthrough.recording.model.recording import Message, Request
from cutthrough.recording.model.sluices import Sluice
from cutthrough.recording.play.alter import OnReplay


class Exchange(Protocol):
    """The session's services: a Replay (session.replay.replay), perhaps by way of
    BehindFilters; none after the exchange's end."""

    @property
    def id(self) -> str: ...                 # as the access log has it
    @property
    def has_filters(self) -> bool: ...       # to which answers go (behind_filters)
    def answer_by_function(self, function: Callable[[socket.socket], None]) -> None: ...
    def answer(self, head: bytes) -> Sluice: ...
    def answer_whole(self, head: bytes, body: bytes) -> bool: ...
    def refuse(self, label: str, text: str) -> None: ...
    def collect_request_body(self) -> Sluice | None: ...
    def end_request_body(self) -> None: ...
    def pause_request(self) -> None: ...
    def answer_early(self, head: bytes) -> Sluice: ...
    def close_after_answer(self) -> None: ...
    def set_outcome(self, label: str, text: str) -> None: ...
    def send_continue(self) -> None: ...
    def cache_answer(self, head: bytes, body: bytes, sent: bytes, number: int,
                     packed: bytes) -> None: ...
    def answer_websocket(self, function: Callable[[socket.socket], None]) -> None: ...
    def go_to_origin(self) -> None: ...
    def send_collected_head(self) -> bool: ...


class Arrival(NamedTuple):
    """A request as the session has read it. Its body counts in the bounds of `asker`.
    """

    mode: int                                # as policy's Recording has it
    head: str
    host: str
    port: int
    scheme: str
    minor: int                               # of its HTTP/1 version
    has_body: bool
    offers: bool                             # an upgrade
    asker: Asker

    @property
    def method(self) -> str:
        return self.head[:self.head.index(" ")]


# Of an Arrival, but for its asker: as the session passes them
Values: TypeAlias = tuple[int, str, str, int, str, int, bool, bool]


class Line(NamedTuple):
    """Requests that are answered by their first line: `text`, up to its CR."""

    is_inside: bool                          # an opened tunnel
    port: int
    host: bytes
    text: bytes


class Ready(NamedTuple):
    """The answer to a line, framed. `packed`: the recording, as the matcher has it;
    `mark`: of its owner (sharing.mark_of)."""

    head: bytes
    body: bytes
    number: int
    packed: bytes = b""
    mark: str = ""


class AnswerCache(Protocol):
    """Answers that the session sends without a Play, and how often each was sent."""

    by_fields: bool

    def clear(self) -> None: ...
    def prepare(self, line: Line, ready: Ready) -> bool: ...
    def count(self, number: int) -> None: ...
    def take_hits(self) -> dict[int, int]: ...


def no_mask(request: Request) -> Callable[[Message], Message]:
    return lambda message: message


class Hits:
    """Hits of a session that requests choose: none of its answers are at hand."""

    by_fields = False

    def __init__(self) -> None:
        self._hits: dict[int, int] = {}

    def clear(self) -> None: ...

    def prepare(self, *_answer: object, **_more: object) -> bool:
        return False

    def count(self, number: int) -> None:
        self._hits[number] = self._hits.get(number, 0) + 1

    def take_hits(self) -> dict[int, int]:
        hits, self._hits = self._hits, {}
        return hits


class Shared:
    """The common state of a session's plays."""

    def __init__(self, answer_cache: AnswerCache, miss_log: MissLog,
                 gate: Gate | None = None) -> None:
        self.answer_cache, self.miss_log = answer_cache, miss_log
        self.gate = gate or Gate()
        self.matcher: Matcher | None = None  # None: the session is being read
        self.rules = b""                     # of the matcher, for other processes
        self.waiting: set[asyncio.Future[None]] = set()
        self.tasks: set[Begun[None]] = set()
        self.speed = 0.0                     # of recorded times; 0: at once
        self.wants_fields = False
        self.most_body = 4 << 20
        self.tells_nearest = False           # to clients (R74)
        # Of the messages of a request's WebSocket
        self.mask: Callable[[Request], Callable[[Message], Message]] = no_mask
        self.on_replay: OnReplay | None = None
        self.stubs: Matcher | None = None    # they come before recordings
        # If there are stubs: appends to the RequestLog
        self.log_request: Callable[[Request], Awaitable[None]] | None = None

    @property
    def caches_answers(self) -> bool:
        return self.stubs is None and not isinstance(self.answer_cache, Hits)

    def be_ready(self) -> None:
        if self.matcher is None:
            self.matcher = Matcher()
        for future in self.waiting:
            if not future.done():
                future.set_result(None)
        self.waiting.clear()

    def begin(self, coroutine: Coroutine[Any, Any, None]) -> Begun[None]:
        task = Begun(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def close(self) -> None:
        for task in list(self.tasks):
            task.end()
