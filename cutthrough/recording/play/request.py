"""One request that is replayed: its recording is found, and sent as its answer.

    start ─> (the body) ─> the matcher ─> answer        with its chunks and trailers
                                └─> go_to_origin, refuse   no recording answers it (R60)

If nothing has to be waited for, all of that happens within `start`. A body counts in
the worker's bound while it is here. exchange.work reads a costly body apart (R69).
"""

import asyncio
import logging
import math
import socket
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from cutthrough.contained import Begun
from cutthrough.exchange.work import MOST_US, SMALL, Body, Busy, Unread, is_costly
from cutthrough.recording.match import reading as apart
from cutthrough.recording.match.index import Draw
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match, Miss, Reading, TooLong
from cutthrough.recording.match.misses import Missed
from cutthrough.recording.model.recorded_heads import (
    NotSent,
    build_body,
    build_head,
    build_trailers,
    has_body,
    is_call,
    read_request,
    takes_time,
)
from cutthrough.recording.model.recording import Pattern, Recording, Request
from cutthrough.recording.model.sharing import Reader, owner_of
from cutthrough.recording.model.sluices import Sluice, take, until_left, write
from cutthrough.recording.play.alter import OnReplay, ReplayFailed, alter, changes
from cutthrough.recording.play.calls import refusal
from cutthrough.recording.play.in_step import in_step_of
from cutthrough.recording.play.shared import Arrival, Exchange, Shared
from cutthrough.recording.play.websocket import play_websocket
from cutthrough.recording.sessions.aside import aside

log = logging.getLogger("cutthrough")

# As policy's Recording has it
REPLAYS, CACHES = 2, 3


class Play:
    wants_response = wants_messages = False  # of filters: read by the session
    __slots__ = ("_beyond", "_collected", "_task", "arrival", "body", "exchange",
                 "shared", "wants_upload")

    def __init__(self, shared: Shared, exchange: Exchange, arrival: Arrival) -> None:
        self.shared, self.exchange, self.arrival = shared, exchange, arrival
        self.wants_upload = arrival.has_body
        self.body = self._beyond = b""
        self._collected: Body | None = None
        self._task: Begun[None] | None = None

    def start(self) -> None:
        if self.arrival.has_body or self.shared.matcher is None:
            self._begin(self._prepare)
        else:
            self._contain_decide()

    def on_upload(self, sluice: Sluice) -> None:
        """No recording answers it, and the origin is there."""
        self._begin(self._send_body, sluice)

    def take_head(self, head: str) -> None:
        """The filters of the body have changed it."""
        self.arrival = self.arrival._replace(head=head)

    def end(self, label: str) -> None:
        """The exchange has ended. Idempotent."""
        task, self._task = self._task, None
        if task is not None and task is not asyncio.current_task():
            task.end()
        self.drop_body()

    def collect(self) -> Body:
        """For the request's body, until the exchange ends."""
        self._collected = self.shared.gate.memory.open(self.arrival.asker.name)
        return self._collected

    def drop_body(self) -> None:
        self.body = self._beyond = b""
        if self._collected is not None:
            self._collected.close()
            self._collected = None

    def _begin(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """No coroutine: it would not be awaited if the task does not begin."""
        self._task = self.shared.begin(self._contain(function, *args))

    async def _contain(self, function: Callable[..., Awaitable[None]], *args: Any
                       ) -> None:
        try:
            await function(*args)
        except asyncio.CancelledError:
            if asyncio.current_task() is not self._task:
                raise                        # the exchange has ended
            self._fail(ReplayFailed("its task was cancelled"))
        except Exception as error:
            self._fail(error)

    def _contain_decide(self) -> None:
        try:
            self.decide()
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, ReplayFailed | NotSent):
            self.exchange.refuse("replay_failed", str(error))
        else:
            log.error("a request could not be replayed", exc_info=error)
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
        if not self.arrival.has_body:
            self.decide()
        elif (in_step := in_step_of(self)) is not None:
            await in_step.run()
        elif await self._collect():
            self.decide()

    async def _collect(self) -> bool:
        """Reads the request's body. False: it is too long, or there is no room for it,
        and the request has gone its way."""
        exchange, most = self.exchange, self.shared.most_body
        body = self.collect()
        sluice = exchange.collect_request_body()
        if sluice is None:
            return False
        exchange.send_continue()
        while (piece := await take(sluice)) != b"":
            if len(body) + len(piece) > most:
                exchange.refuse("recording_missed", "the request's body is longer than "
                                f"{most} bytes (recording_body): it is not compared")
                return False
            if not body.add(piece):
                self.stop_reading(body.whole(), piece)
                return False
        self.body = body.whole()
        exchange.end_request_body()
        return True

    def decide(self) -> None:
        shared, matcher = self.shared, self.shared.matcher
        assert matcher is not None
        if shared.stubs is not None and self._answer_from_stubs(shared.stubs):
            return
        request = self.request(shared.wants_fields or self.arrival.has_body or (
            self.reader is not None and matcher.readable.has_variants))
        if (self.arrival.has_body or len(self.arrival.head) > SMALL) and (
                shared.gate.is_apart and matcher.is_costly(request)):
            self._begin(self._read_apart, matcher, request)
        else:
            self._settle(matcher, request, matcher.read(request))

    async def _read_apart(self, matcher: Matcher, request: Request) -> None:
        shared = self.shared
        gate, asker = shared.gate, self.arrival.asker.name
        try:
            changed, reading = await gate.run(
                asker, apart.read, shared.rules, request, False)
            reading = reading._replace(request=changed or request)
            patterns, holds = matcher.asks(reading), dict[Pattern, bool]()
            if patterns:
                holds = await gate.run(
                    asker, apart.ask, patterns, reading.request, request)
        except Busy:
            self.go_unread()
        except Unread as error:
            self.miss(Miss(f"the request's body is not compared: {error}"))
        else:
            self._settle(matcher, request, reading, holds)

    def _settle(self, matcher: Matcher, request: Request, reading: Reading,
                known: dict[Pattern, bool] | None = None) -> None:
        shared, holds = self.shared, known or {}
        is_bounded = known is None and shared.gate.is_apart
        result: Match | Miss | Draw
        try:
            result = matcher.draw(
                request, reading, offers=self.arrival.offers, holds=holds,
                reader=self.reader, seconds=MOST_US / 1e6 if is_bounded else math.inf)
        except TooLong:
            self._begin(self._read_apart, matcher, request)
            return
        if isinstance(result, Draw) and not matcher.is_shared:
            result = matcher.take(result)
        if isinstance(result, Draw) or shared.log_request is not None:
            self._begin(self._settle_apart, matcher, request, reading, holds, result)
        else:
            self._carry_out(matcher, request, reading, result)

    async def _settle_apart(self, matcher: Matcher, request: Request, reading: Reading,
                            holds: dict[Pattern, bool], result: Match | Miss | Draw
                            ) -> None:
        shared = self.shared
        while isinstance(result, Draw):
            try:
                result = await aside(matcher.take, result)
            except KeyError:                 # a recording was deleted meanwhile
                result = matcher.draw(request, reading, offers=self.arrival.offers,
                                      holds=holds, reader=self.reader)
        if shared.log_request is not None and (
                isinstance(result, Match) or self.arrival.mode == REPLAYS):
            await self._log_request(reading.request)
        self._carry_out(matcher, request, reading, result)

    def _carry_out(self, matcher: Matcher, request: Request, reading: Reading,
                result: Match | Miss) -> None:
        shared = self.shared
        if isinstance(result, Match) and result.recording.response.status == 101 and (
                not self.arrival.offers):          # by its patterns
            result = Miss(f"recording {result.recording.number} is a WebSocket, which "
                          "the request does not offer")
        if isinstance(result, Miss):
            if self.arrival.mode == REPLAYS:
                self._explain(matcher, request, reading, result)
            else:
                self.miss(result)
            return
        shared.answer_cache.count(result.recording.number)
        if result.recording.response.status == 101:
            self.exchange.answer_websocket(partial(self._converse, result))
        elif changes(result, shared.on_replay):
            self._answer_changed(result, shared.on_replay)
        else:
            self._answer(result.recording, result.is_last)

    def _explain(self, matcher: Matcher, request: Request, reading: Reading,
                 miss: Miss) -> None:
        miss_log, begun = self.shared.miss_log, time.monotonic()
        if not miss_log.may_explain():
            self.miss(Miss(miss.reason, details="so many requests are missed that the "
                           "nearest recording is not looked for"))
            return
        if self.shared.stubs is not None and not len(matcher):
            matcher = self.shared.stubs
        miss = matcher.explain(request, reading, miss, offers=self.arrival.offers,
                               admits=miss_log.admitted_to(self.arrival.asker))
        likely = miss.likely
        if likely is None:
            self.miss(miss)
        elif self.shared.gate.is_apart and any(
                is_costly(example.body, example.field("content-encoding"))
                for example in (reading.request, *(
                    recording.request for recording in likely.asked)) if example.body):
            self._begin(self._explain_apart, reading, miss)
        else:
            miss = Miss(miss.reason, matcher.nearest(reading.request, likely))
            miss_log.explained(time.monotonic() - begun)
            self.miss(miss)

    async def _explain_apart(self, reading: Reading, miss: Miss) -> None:
        shared, begun = self.shared, time.monotonic()
        try:
            nearest = await shared.gate.run(
                self.arrival.asker.name, apart.find_nearest, shared.rules,
                reading.request, miss.likely)
        except (Busy, Unread):
            nearest = None
        shared.miss_log.explained(time.monotonic() - begun)
        self.miss(Miss(miss.reason, nearest))

    def miss(self, miss: Miss) -> None:
        if self.arrival.mode == REPLAYS:
            self.refuse(self.log_miss(miss))
        else:
            self.shared.miss_log.missed += 1
            self.exchange.go_to_origin()

    def stop_reading(self, body: bytes, piece: bytes) -> None:
        """There is no room for `piece`, which follows `body`."""
        self.body, self._beyond = body, piece     # their sum would be a copy
        self.exchange.pause_request()
        self.go_unread()

    def go_unread(self) -> None:
        """Without room or time for its body it goes on, if its rule allows that."""
        if self.arrival.mode == REPLAYS:
            self.exchange.refuse("content_limit", "")
        else:
            self.exchange.go_to_origin()

    def log_miss(self, miss: Miss, number: str = "") -> str:
        """Keeps the miss for operators, without the body. Returns the reply's text:
        the reason, and the number under which they find the rest (R74)."""
        shared = self.shared
        assert shared.matcher is not None
        number = number or self.exchange.id
        shared.miss_log.missed += 1
        request = msgspec.structs.replace(self.request(True), body=b"")
        shared.miss_log.misses.append(Missed(
            number, time.time(), shared.matcher.masked(request), miss))
        return str(miss) if shared.tells_nearest else (
            f"{miss.reason} (request {number})")

    def refuse(self, text: str) -> None:
        """In the form that the client reads."""
        if not is_call(self.arrival.head):
            self.exchange.refuse("recording_missed", text)
            return
        self.exchange.set_outcome("recording_missed", text)
        response = refusal(text)
        head, chunked = build_head(response, "POST", self.arrival.minor)
        body = build_body(response, "POST", chunked)
        if not self.exchange.answer_whole(head, body):
            sluice = self.exchange.answer(head)
            sluice.write(body)
            sluice.finish()

    async def _log_request(self, masked: Request | None) -> None:
        """`masked`: without its secrets, and perhaps without its fields."""
        shared = self.shared
        if shared.log_request is not None and shared.matcher is not None:
            await shared.log_request(masked if masked is not None and masked.fields else
                        shared.matcher.masked(self.request(True)))

    def _answer_from_stubs(self, stubs: Matcher) -> bool:
        """False: there is no such answer."""
        match = stubs.match(self.request(True), explain=False)
        if isinstance(match, Match):
            self._begin(self._send_stub, match)
        return isinstance(match, Match)

    async def _send_stub(self, match: Match) -> None:
        await self._log_request(None)
        self._answer_changed(match, None)

    def _answer_changed(self, match: Match, hook: OnReplay | None) -> None:
        request = self.request(True)
        if match.recording.template and self.shared.gate.is_apart and is_costly(
                self.body, request.field("content-encoding")):
            self._begin(self._fill_apart, match, request, hook)
        else:
            self._alter(match, request, hook)

    async def _fill_apart(self, match: Match, request: Request, hook: OnReplay | None
                          ) -> None:
        try:
            recording = await self.shared.gate.run(
                self.arrival.asker.name, apart.fill, match.recording, request,
                match.state)
        except Busy:
            self.exchange.refuse("content_limit", "")
        except (Unread, ValueError) as error:
            self.exchange.refuse("replay_failed", f"recording {match.recording.number},"
                                 f" its template: {error}")
        else:
            self._alter(msgspec.structs.replace(
                match, recording=msgspec.structs.replace(recording, template=False)),
                request, hook)

    def _alter(self, match: Match, request: Request, hook: OnReplay | None) -> None:
        self._answer(alter(match, request, hook), is_last=False)

    def _converse(self, match: Match, peer: socket.socket) -> None:
        shared, request = self.shared, self.request(True)
        setting = apart.Setting(request, shared.mask(request), shared.rules,
                                shared.gate, self.arrival.asker.name)
        shared.begin(play_websocket(
            peer, match, shared.speed, shared.most_body, setting,
            partial(self.log_miss, number=self.exchange.id)))

    @property
    def reader(self) -> Reader | None:
        """None: it may be answered with all that is recorded. So are tests."""
        return Reader(owner_of(self.arrival.asker.user), self.arrival.asker.shares) if (
            self.arrival.mode == CACHES and self.shared.stubs is None) else None

    def request(self, fields: bool) -> Any:
        arrival = self.arrival
        return read_request(arrival.head, arrival.scheme, arrival.host, arrival.port,
                            self.body, fields=fields)

    def _answer(self, recording: Recording, is_last: bool) -> None:
        response = recording.response
        method = self.arrival.method
        head, chunked = build_head(response, method, self.arrival.minor)
        if takes_time(recording, self.shared.speed):
            self._begin(self._send, recording, head, chunked, method)
            return
        body = build_body(response, method, chunked)
        matcher, number = self.shared.matcher, recording.number
        if is_last and self.shared.caches_answers and matcher is not None and (
                matcher.readable.is_kept(number, self.reader)):
            self.exchange.cache_answer(
                head, body, self.body, number, matcher.packed(number))
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
                self.exchange.close_after_answer()
            elif chunked:
                sluice.write(build_trailers(response.trailers))
        sluice.finish()

    async def _send_body(self, sluice: Sluice) -> None:
        chunked = self.exchange.send_collected_head()
        for data in (self.body, self._beyond):
            await write(sluice, data, chunked)
        self.drop_body()
        while piece := await take(sluice):   # if it was collected in part
            await write(sluice, piece, chunked)
        if chunked:
            sluice.write(b"0\r\n\r\n")
        sluice.finish()
