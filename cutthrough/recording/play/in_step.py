"""A request in replay, answered behind its body's end, or before, in step with it.

    run ─> the end of the body ───────> Play.decide           as any request
      │      └─> an answer was earlier > _answer
      ├─> an answer is due before ────> _answer ─> _go_on     in step
      └─> no recording begins like it > Play.miss

Which recordings there are, and what of them is due, is in `calls` if it is a call of
gRPC, and else in `turns`.
"""

import asyncio
import logging
from typing import Any, Protocol

import msgspec

from cutthrough.exchange.work import Body
from cutthrough.recording.match.index import Draw
from cutthrough.recording.match.matcher import Matcher
from cutthrough.recording.match.matches import Match, Miss
from cutthrough.recording.model.recorded_heads import (
    build_head,
    build_trailers,
    is_call,
)
from cutthrough.recording.model.recording import Recording
from cutthrough.recording.model.sharing import Reader
from cutthrough.recording.model.sluices import Sluice, comes, take, write
from cutthrough.recording.play.alter import ReplayFailed, alter, changes
from cutthrough.recording.play.calls import (
    Answering,
    Call,
    CallDiffers,
    refusal_trailers,
)
from cutthrough.recording.play.shared import Arrival
from cutthrough.recording.play.turns import Turns, may_turn
from cutthrough.recording.sessions.aside import aside

log = logging.getLogger("cutthrough")

# A client that has sent nothing for so long waits for the answer's begin
SILENCE_S = 0.1


class Asked(Protocol):
    """A Play."""

    body: bytes
    arrival: Arrival
    exchange: Any
    shared: Any
    wants_upload: bool

    def collect(self) -> Body: ...
    def drop_body(self) -> None: ...
    @property
    def reader(self) -> Reader | None: ...
    def request(self, fields: bool) -> Any: ...
    def decide(self) -> None: ...
    def miss(self, miss: Miss) -> None: ...
    def stop_reading(self, body: bytes, piece: bytes) -> None: ...
    def log_miss(self, miss: Miss) -> str: ...
    def refuse(self, text: str) -> None: ...


def in_step_of(play: Asked) -> "InStep | None":
    """None: it is answered behind its end."""
    matcher = play.shared.matcher
    if is_call(play.arrival.head):
        return InStep(play, Call(matcher, play.request(True), play.shared.most_body,
                                 play.reader))
    if matcher.begins.has_any and may_turn(matcher, play.request(False)):
        return InStep(play, Turns(matcher, play.request(True), play.reader))
    return None


class InStep:
    """One call, or another request."""

    def __init__(self, play: Asked, call: Call | Turns) -> None:
        self._play, self._call = play, call
        self._exchange, self._shared = play.exchange, play.shared

    async def run(self) -> None:
        exchange, play, call = self._exchange, self._play, self._call
        most = self._shared.most_body
        if call.is_unknown:                  # not even its first message is awaited
            play.wants_upload = False
            play.decide()
            return
        sluice = exchange.collect_request_body()
        if sluice is None:
            return
        exchange.send_continue()
        body = play.collect()
        while True:
            try:
                piece = sluice.take()
                if piece is None:
                    if call.is_silent and await comes(sluice, SILENCE_S):
                        continue
                    recording = call.look()
                    if recording is not None:
                        play.body = body.whole()
                        await self._answer(recording, sluice)
                        return
                    piece = await take(sluice)
                if not piece:
                    break
                if not body.add(piece):
                    play.stop_reading(body.whole(), piece)
                    return
                if len(body) > most:
                    too_long = ("the request's body is longer than "
                                f"{most} bytes (recording_body)")
                    if not call.is_of_grpc:
                        exchange.refuse("recording_missed", too_long)
                        return
                    raise CallDiffers(too_long)
                call.take(piece)
            except CallDiffers as error:
                play.body = body.whole()
                exchange.pause_request()
                play.miss(error.miss)
                return
        play.body = body.whole()
        exchange.end_request_body()
        recording = call.look_early()
        if recording is None:
            play.decide()
        else:
            await self._answer(recording, sluice)

    async def _answer(self, candidate: Recording, sluice: Sluice) -> None:
        """Answers with the next recording of the sequence that has the same messages as
        `candidate`."""
        shared, exchange, play = self._shared, self._exchange, self._play
        result = await self._next_like(candidate)
        if isinstance(result, Miss):
            exchange.pause_request()
            play.miss(result)
            return
        try:
            recording = result.recording
            if changes(result, shared.on_replay):
                recording = alter(result, play.request(True), shared.on_replay)
        except ReplayFailed as error:
            exchange.refuse("replay_failed", str(error))
            return
        shared.answer_cache.count(recording.number)
        self._call.follow(recording)
        if recording.delay_us:
            await asyncio.sleep(recording.delay_us / 1e6)
        play.drop_body()
        await self._go_on(Answering(recording, self._call.steps(recording)), sluice)

    async def _next_like(self, candidate: Recording) -> Match | Miss:
        matcher: Matcher = self._shared.matcher
        request = msgspec.structs.replace(
            self._play.request(True), body=candidate.request.body)
        reading = matcher.read(request)
        while True:
            result = matcher.draw(request, reading, reader=self._play.reader)
            if not isinstance(result, Draw):
                return result
            if not matcher.is_shared:
                return matcher.take(result)
            try:
                return await aside(matcher.take, result)
            except KeyError:                 # a recording was deleted meanwhile
                continue

    async def _go_on(self, answering: Answering, up: Sluice) -> None:
        exchange, speed, call = self._exchange, self._shared.speed, self._call
        arrival = self._play.arrival
        head, chunked = build_head(
            answering.recording.response, arrival.method, arrival.minor)
        down: Sluice | None = None
        sent, ended, before_us = bytearray(), False, 0
        while answering.left:
            step = answering.left[0]
            comes_behind = False
            try:
                while not ended and not 0 <= step.messages <= call.message_count:
                    comes_behind = True
                    piece = await take(up)
                    if piece:
                        call.take(piece)
                        call.look()
                    else:
                        ended = True
                        exchange.end_request_body()
                        call.end()
                    if not call.follows(answering.recording):
                        answering = await self._instead(bytes(sent), down is not None)
                        step = answering.left[0]
            except CallDiffers as error:
                self._end(error.miss, down, chunked)
                return
            if speed and not comes_behind:
                await asyncio.sleep(max(0, step.at_us - before_us) / 1e6 / speed)
            before_us = step.at_us
            del answering.left[0]
            if down is None:
                down = exchange.answer_early(head)
            elif answering.left:
                await write(down, step.data, chunked)
                sent += step.data
            else:
                if answering.recording.response.is_cut:
                    exchange.close_after_answer()
                elif chunked:
                    down.write(build_trailers(answering.recording.response.trailers))
                down.finish()

    async def _instead(self, sent: bytes, has_head: bool) -> Answering:
        """Returns another recording that began in the same way. Raises CallDiffers."""
        call = self._call
        candidate = call.instead(sent)
        result = None if candidate is None else await self._next_like(candidate)
        if not isinstance(result, Match) or changes(result, self._shared.on_replay) or (
                not result.recording.response.body.startswith(sent)):
            raise CallDiffers(f"the call goes on as another recording behind message "
                          f"{call.message_count}, and has another answer already")
        self._shared.answer_cache.count(result.recording.number)
        call.follow(result.recording)
        return Answering(
            result.recording, call.steps(result.recording), has_head, len(sent))

    def _end(self, miss: Miss, down: Sluice | None, chunked: bool) -> None:
        text = self._play.log_miss(miss)
        log.warning("recordings: an answer of %s ended: %s",
                    self._play.arrival.host, text)
        exchange = self._exchange
        if down is None:
            self._play.refuse(text)
        elif chunked and self._call.is_of_grpc:
            exchange.set_outcome("recording_missed", text)
            down.write(build_trailers(refusal_trailers(text)))
            down.finish()
        else:
            exchange.refuse("recording_missed", text)
