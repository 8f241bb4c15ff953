"""One request that is replayed: its recording is found, and sent as its answer.

    start ─> (the body) ─> the matcher ─> answer        with its chunks and trailers
                                └─> pass_on, refuse     no recording answers it (R60)

If nothing has to be waited for, all of that happens within `start`.
"""

import asyncio
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, Protocol

from cutthrough.recording.alter import OnReplay, ReplayFailed, alter, changes
from cutthrough.recording.calls import refusal
from cutthrough.recording.heads import (
    build_head,
    build_trailers,
    has_body,
    is_call,
    read_request,
    size_of,
)
from cutthrough.recording.in_step import InStep
from cutthrough.recording.matcher import Match, Matcher, Miss
from cutthrough.recording.model import Message, Recording, Request, Response
from cutthrough.recording.sluices import PIECE, Sluice, frame, take, until_left, write
from cutthrough.recording.websocket import play_websocket

log = logging.getLogger("cutthrough")

# As policy's Recording has it
REPLAYS = 2
MOST_MISSES = 100                            # that are remembered
EXPLAINED_S = 0.1


class Exchange(Protocol):
    """What the session does. After the exchange's end, nothing."""

    def answer(self, head: bytes) -> Sluice: ...
    def answer_whole(self, head: bytes, body: bytes) -> bool: ...
    def refuse(self, label: str, text: str) -> None: ...
    def collect_request(self) -> Sluice | None: ...
    def end_of_request(self) -> None: ...
    def keep_rest(self) -> None: ...
    def answer_meanwhile(self, head: bytes) -> Sluice: ...
    def end_short(self) -> None: ...
    def end_as(self, label: str, text: str) -> None: ...
    def send_continue(self) -> None: ...
    def keep(self, head: bytes, body: bytes, sent: bytes, number: int, packed: bytes
             ) -> None: ...
    def switch(self, function: Callable[[socket.socket], None]) -> None: ...
    def pass_on(self) -> None: ...
    def send_collected(self) -> bool: ...


class Answers(Protocol):
    """What the session sends without a Play, and how often each was replayed."""

    by_fields: bool

    def clear(self) -> None: ...
    def prepare(self, is_inside: bool, port: int, host: bytes, line: bytes, head: bytes,
                body: bytes, number: int, packed: bytes) -> bool: ...
    def count(self, number: int) -> None: ...
    def take_hits(self) -> dict[int, int]: ...


def no_mask(request: Request) -> Callable[[Message], Message]:
    return lambda message: message


class Missed(NamedTuple):
    """A request that was refused."""

    at_s: float                              # Unix time
    request: Request                         # without its secrets, if it has a matcher
    miss: Miss


class Hits:
    """Of a session that requests choose: none of its answers are at hand."""

    by_fields = False

    def __init__(self) -> None:
        self._hits: dict[int, int] = {}

    def clear(self) -> None: ...

    def prepare(self, *_answer: object) -> bool:
        return False

    def count(self, number: int) -> None:
        self._hits[number] = self._hits.get(number, 0) + 1

    def take_hits(self) -> dict[int, int]:
        hits, self._hits = self._hits, {}
        return hits


class Told:
    """What a worker tells of the requests that were missed."""

    def __init__(self) -> None:
        # Since the session came into force; the last that were refused
        self.missed = 0
        self.misses: deque[Missed] = deque(maxlen=MOST_MISSES)
        self._explained_s = self._since = 0.0

    def explain(self, matcher: Matcher, request: Request, offers: bool, miss: Miss
                ) -> Match | Miss:
        """A miss with the nearest recording, as long as that takes EXPLAINED_S in each
        second at most: a client may ask again and again."""
        begun = time.monotonic()
        if begun - self._since >= 1:
            self._since, self._explained_s = begun, 0.0
        if self._explained_s >= EXPLAINED_S:
            return Miss(f"{miss.reason}; so many requests are missed that the nearest "
                        "recording is not looked for")
        found = matcher.match(request, offers=offers)
        self._explained_s += time.monotonic() - begun
        return found

    def forget(self) -> None:
        """Another session is in force."""
        self.missed = 0
        self.misses.clear()


class Shared:
    """What all plays of a session share."""

    def __init__(self, answers: Answers, told: Told) -> None:
        self.answers, self.told = answers, told
        self.matcher: Matcher | None = None  # None: the session is being read
        self.waiting: set[asyncio.Future[None]] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.speed = 0.0                     # of recorded times; 0: at once
        self.wants_fields = False
        self.most_body = 4 << 20
        # Of the messages of a request's WebSocket
        self.mask: Callable[[Request], Callable[[Message], Message]] = no_mask
        self.on_replay: OnReplay | None = None
        self.first: Matcher | None = None    # answers that come before recordings
        self.note: Callable[[Request], None] | None = None   # with them: what is asked

    @property
    def keeps(self) -> bool:
        """Answers are kept at hand."""
        return self.first is None and not isinstance(self.answers, Hits)

    def be_ready(self) -> None:
        if self.matcher is None:
            self.matcher = Matcher()
        for one in self.waiting:
            if not one.done():
                one.set_result(None)
        self.waiting.clear()

    def close(self) -> None:
        for task in list(self.tasks):
            task.cancel()


class Play:
    wants_response = False                   # of filters: read by the session
    __slots__ = ("_has_body", "_head", "_mode", "_offers", "_port", "_scheme", "_task",
                 "body", "exchange", "host", "minor", "shared", "wants_upload")

    def __init__(self, shared: Shared, exchange: Exchange, mode: int, head: bytes,
                 host: str, port: int, scheme: str, minor: int, has_body: bool,
                 offers: bool) -> None:
        """`offers`: an upgrade."""
        self._offers = offers
        self.shared, self.exchange, self._mode = shared, exchange, mode
        self._head, self.host, self._port = head.decode("latin-1"), host, port
        self._scheme, self.minor = scheme, minor
        self._has_body = self.wants_upload = has_body
        self.body = b""
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        if self._has_body or self.shared.matcher is None:
            self._begin(self._prepare())
        else:
            self._contain_decide()

    def on_upload(self, sluice: Sluice) -> None:
        """No recording answers it, and the origin is there."""
        self._begin(self._send_body(sluice))

    def end(self, label: str) -> None:
        """The exchange has ended. Idempotent."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.cancel()

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._contain(coroutine))
        self._task = task
        self.shared.tasks.add(task)
        task.add_done_callback(self.shared.tasks.discard)

    async def _contain(self, coroutine: Coroutine[Any, Any, None]) -> None:
        try:
            await coroutine
        except Exception:
            log.exception("a request could not be replayed")
            self.exchange.refuse("internal_error", "")

    def _contain_decide(self) -> None:
        try:
            self.decide()
        except Exception:
            log.exception("a request could not be replayed")
            self.exchange.refuse("internal_error", "")

    async def _prepare(self) -> None:
        shared = self.shared
        if shared.matcher is None:
            waiter = asyncio.get_running_loop().create_future()
            shared.waiting.add(waiter)
            try:
                await waiter
            finally:
                shared.waiting.discard(waiter)
        if not self._has_body:
            self.decide()
        elif is_call(self._head):
            await InStep(self).run()
        elif await self._collect():
            self.decide()

    async def _collect(self) -> bool:
        """Reads the request's body. False: it is too long, and the request refused."""
        exchange, pieces, size = self.exchange, list[bytes](), 0
        sluice = exchange.collect_request()
        if sluice is None:
            return False
        exchange.send_continue()
        while (piece := await take(sluice)) != b"":
            pieces.append(piece)
            size += len(piece)
            if size > self.shared.most_body:
                exchange.refuse("recording_missed", "the request's body is longer than "
                                f"{self.shared.most_body} bytes (recording_body): it "
                                "is not compared")
                return False
        self.body = b"".join(pieces)
        exchange.end_of_request()
        return True

    def decide(self) -> None:
        shared = self.shared
        matcher = shared.matcher
        assert matcher is not None
        if shared.first is not None and self._answer_first(shared.first):
            self._tell_asked()
            return
        found = matcher.match(self.request(shared.wants_fields or self._has_body),
                              explain=False, offers=self._offers)
        if isinstance(found, Miss) and self._mode == REPLAYS:
            known = shared.first if shared.first and not len(matcher) else matcher
            found = shared.told.explain(
                known, self.request(True), self._offers, found)
        if isinstance(found, Match) and found.recording.response.status == 101 and (
                not self._offers):          # by its patterns
            found = Miss(f"recording {found.recording.number} is a WebSocket, which "
                         "the request does not offer")
        if isinstance(found, Match) or self._mode == REPLAYS:
            self._tell_asked()
        if isinstance(found, Match):
            shared.answers.count(found.recording.number)
            if found.recording.response.status == 101:
                self.exchange.switch(partial(self._converse, found))
            elif changes(found, shared.on_replay):
                self._answer_changed(found, shared.on_replay)
            else:
                self._answer(found.recording, found.is_last)
            return
        self.miss(found)

    def miss(self, found: Miss) -> None:
        if self._mode == REPLAYS:
            self.note(found)
            self.refuse(str(found))
        else:
            self.shared.told.missed += 1
            self.exchange.pass_on()

    def note(self, found: Miss) -> None:
        shared = self.shared
        assert shared.matcher is not None
        shared.told.missed += 1
        shared.told.misses.append(Missed(
            time.time(), shared.matcher.masked(self.request(True)), found))

    def refuse(self, text: str) -> None:
        """In the form that the client reads."""
        if not is_call(self._head):
            self.exchange.refuse("recording_missed", text)
            return
        self.exchange.end_as("recording_missed", text)
        response = refusal(text)
        head, chunked = build_head(response, "POST", self.minor)
        body = build_body(response, "POST", chunked)
        if not self.exchange.answer_whole(head, body):
            sluice = self.exchange.answer(head)
            sluice.write(body)
            sluice.finish()

    def _tell_asked(self) -> None:
        shared = self.shared
        if shared.note is not None and shared.matcher is not None:
            shared.note(shared.matcher.masked(self.request(True)))

    def _answer_first(self, first: Matcher) -> bool:
        """False: there is no such answer."""
        found = first.match(self.request(True), explain=False)
        if isinstance(found, Match):
            self._answer_changed(found, None)
        return isinstance(found, Match)

    def _answer_changed(self, found: Match, hook: OnReplay | None) -> None:
        try:
            made = alter(found, self.request(True), hook)
        except ReplayFailed as error:
            self.exchange.refuse("replay_failed", str(error))
        else:
            self._answer(made, is_last=False)

    def _converse(self, found: Match, far: socket.socket) -> None:
        shared = self.shared
        task = asyncio.get_running_loop().create_task(play_websocket(
            far, found.recording, found.route, shared.speed, shared.most_body,
            shared.mask(self.request(True))))
        shared.tasks.add(task)
        task.add_done_callback(shared.tasks.discard)

    def request(self, fields: bool) -> Any:
        return read_request(self._head, self._scheme, self.host, self._port,
                            self.body, fields=fields)

    def _answer(self, recording: Recording, is_last: bool) -> None:
        response = recording.response
        method = self._head[:self._head.index(" ")]
        head, chunked = build_head(response, method, self.minor)
        if takes_time(recording, self.shared.speed):
            self._begin(self._send(recording, head, chunked, method))
            return
        body = build_body(response, method, chunked)
        matcher = self.shared.matcher
        if is_last and self.shared.keeps and matcher is not None:
            number = recording.number
            self.exchange.keep(head, body, self.body, number, matcher.packed(number))
        if self.exchange.answer_whole(head, body):
            return
        sluice = self.exchange.answer(head)
        if body:
            sluice.write(body)
        sluice.finish()

    async def _send(self, recording: Recording, head: bytes, chunked: bool, method: str
                    ) -> None:
        loop = asyncio.get_running_loop()
        response, speed = recording.response, self.shared.speed
        begun = loop.time() + recording.delay_us / 1e6
        await asyncio.sleep(begun - loop.time()
                            + (response.head_us / 1e6 / speed if speed else 0))
        if not response.status:
            await until_left()
        sluice = self.exchange.answer(head)
        if has_body(method, response.status):
            for chunk in response.chunks:
                if speed:
                    wait_s = begun + chunk.at_us / 1e6 / speed - loop.time()
                    if wait_s > 0:
                        await asyncio.sleep(wait_s)
                if chunk.data:
                    await write(sluice, chunk.data, chunked)
            if response.cut_by_client:
                await until_left()
            elif response.is_cut:
                self.exchange.end_short()
            elif chunked:
                sluice.write(build_trailers(response.trailers))
        sluice.finish()

    async def _send_body(self, sluice: Sluice) -> None:
        body, self.body = self.body, b""
        chunked = self.exchange.send_collected()
        await write(sluice, body, chunked)
        while piece := await take(sluice):   # if it was collected in part
            await write(sluice, piece, chunked)
        if chunked:
            sluice.write(b"0\r\n\r\n")
        sluice.finish()


class Misnamed(Play):
    """Its request names a session by what is no name."""

    __slots__ = ("_why",)

    def __init__(self, why: str, *play: Any) -> None:
        super().__init__(*play)
        self._why = why

    def start(self) -> None:
        self.refuse(self._why)


class Absent(Play):
    """There is no such session."""

    __slots__ = ("_name",)

    def __init__(self, name: str, *play: Any) -> None:
        super().__init__(*play)
        self._name = name

    def start(self) -> None:
        self.miss(Miss(f"there is no session {self._name!r}"))


def takes_time(recording: Recording, speed: float) -> bool:
    """Its answer is not sent at once, or not in one piece, or not whole."""
    response = recording.response
    return bool(speed or recording.delay_us or response.is_cut
                or size_of(response) > PIECE)


def build_body(response: Response, method: str, chunked: bool) -> bytes:
    """As it is sent behind a head of `build_head`."""
    if not has_body(method, response.status):
        return b""
    if not chunked:
        return response.body
    pieces = [one.data for one in response.chunks if one.data]
    return b"".join(map(frame, pieces)) + build_trailers(response.trailers)
