"""Bodies on their way through filters: whole, or piece by piece.

A function of a body that is an async function gets the whole body, decoded, up to the
filter's bound; it returns another one, or None. One that is an async generator gets an
iterator of pieces, and yields others. If all functions are of the first kind, nothing
is sent before the last of them has returned, and an unchanged body goes on as it
came. Else the head goes first, and the body follows as they yield it.

Nothing is read from one side beyond a bound until the other has taken its bytes. Bodies
that are collected whole share the worker's bound (R69): if there is no room, a body
whose filters may be passed goes on as it came, else its exchange ends.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack, aclosing

from cutthrough.codings import CodingError, Decoders, make_decoders
from cutthrough.filters.calls import Calls, NoRoom
from cutthrough.filters.exchange import Sluice, read, write
from cutthrough.filters.flow import (
    Headers,
    Request,
    Response,
    about_body,
    is_about_body,
)
from cutthrough.filters.flow_heads import (
    build_request,
    build_response,
    build_trailers,
    framing_of,
    in_chunks,
    of_length,
    read_trailers,
)
from cutthrough.filters.pieces import Pieces
from cutthrough.filters.stage import Stage, streams

# As the reason of a fault: the exchange ends with `content_limit`
NO_ROOM = NoRoom("the worker's bodies are as large as collected_bodies allows")


class _Passage:
    """One body and its filters; the direction is in the subclass."""

    hook = ""
    before: Headers                     # the message's, as they came

    def __init__(self, run: Calls, sluice: Sluice, stages: list[Stage],
                 headers: Headers) -> None:
        self.run, self.sluice, self.stages = run, sluice, stages
        self.coding = ",".join(headers.get_all("Content-Encoding"))

    async def go(self) -> None:
        try:
            make_decoders(self.coding)
        except CodingError as error:
            for stage in self.stages:           # Ended, unless all of them pass
                self.run.fail(stage, self.hook, str(error))
            await self.send_as_it_came([], read(self.sluice))
            return
        if any(streams(getattr(stage, self.hook)) for stage in self.stages):
            await self.stream()
        else:
            await self.whole()

    async def give_turn(self, decoders: Decoders) -> None:
        """Lets others run first if these decoders have worked for long."""
        if self.run.chain.tally.turn.spend(decoders.take_work()):
            await asyncio.sleep(0)

    # Whole.

    async def whole(self) -> None:
        """A filter whose bound is exceeded fails if its turn has come: one before it
        may make the body shorter."""
        stages = self.stages = list(self.stages)     # those that have not failed
        source, decoders = read(self.sluice), make_decoders(self.coding)
        raw = self.run.collect()
        decoded = self.run.collect() if decoders else raw
        size = 0
        try:
            async for piece in source:
                if not raw.add(piece):
                    await self.go_unread([raw.whole(), piece], source)
                    return
                for part in decoders.feed(piece):
                    await self.give_turn(decoders)
                    size += len(part)
                    while stages and size > stages[0].max_body:
                        self.fail_long(stages.pop(0))
                    if not stages:
                        break
                    if decoders and not decoded.add(part):
                        await self.go_unread([raw.whole()], source)
                        return
                if not stages:
                    break
                await self.give_turn(decoders)       # perhaps there was no part
            if stages:
                decoders.end()
        except CodingError as error:
            for stage in stages:
                self.run.fail(stage, self.hook, str(error))
            stages.clear()
        if not stages:
            if decoders:
                decoded.close()
            await self.send_as_it_came([raw.whole()], source)
            return
        first = body = decoded.whole()
        for stage in stages:
            if len(body) > stage.max_body:
                self.fail_long(stage)
            else:
                body = await self.apply(stage, body)
        self.compare(first, body)
        if body != first:
            await self.send_whole(body, is_changed=True)
        else:
            await self.send_whole(raw.whole() if decoders else first, is_changed=False)

    def fail_long(self, stage: Stage) -> None:
        self.run.fail(
            stage, self.hook, f"the body is longer than {stage.max_body} bytes")

    async def go_unread(self, begun: list[bytes], rest: AsyncIterator[bytes]) -> None:
        """There is no room for it. Raises Ended if it ends the exchange."""
        for stage in self.stages:
            self.run.fail(stage, self.hook, NO_ROOM)
        await self.send_as_it_came(begun, rest)

    async def apply(self, stage: Stage, body: bytes) -> bytes:
        """The body after this filter. Raises Ended."""
        run, flow = self.run, self.run.flow
        kept = self.keep_head() if stage.on_fault == "pass" else None
        try:
            result = await run.call(stage, getattr(stage, self.hook), flow, body)
            if result is not None and not isinstance(result, bytes):
                raise TypeError(f"returned {type(result).__name__}, not bytes")
        except Exception as error:      # the operator's code
            run.fail(stage, self.hook, error)
            flow._refusal, flow._answered = None, False
            self.restore_head(kept)
            return body
        await run.settle(stage)
        return body if result is None else result

    def keep_head(self) -> tuple[Request, Response | None]:
        """Returns copies of the heads: if a filter fails, its changes do not go on."""
        flow = self.run.flow
        return flow.request.copy(), flow.response and flow.response.copy()

    def restore_head(self, kept: tuple[Request, Response | None] | None) -> None:
        if kept is not None:
            self.run.flow._request, self.run.flow._response = kept

    # Piece by piece.

    async def stream(self) -> None:
        async with AsyncExitStack() as opened:
            source = await opened.enter_async_context(aclosing(self.decoded()))
            for stage in self.stages:
                source = (Pieces(self.run, stage, self.hook, source).filtered()
                          if streams(getattr(stage, self.hook))
                          else self.gathered(stage, source))
                await opened.enter_async_context(aclosing(source))
            chunked = self.begin_stream()
            async for piece in source:
                await write(self.sluice, piece, chunked)
        self.end(chunked, self.trailers(is_changed=True))

    def trailers(self, is_changed: bool) -> list[tuple[str, str]]:
        """Returns the trailers that go on behind the body: gRPC has its status there.
        """
        return [(name, value) for name, value in read_trailers(self.sluice.trailers())
                if not is_changed or not is_about_body(name)]

    def end(self, chunked: bool, trailers: list[tuple[str, str]]) -> None:
        if chunked:
            self.sluice.write(build_trailers(trailers))
        self.sluice.finish()

    async def decoded(self) -> AsyncGenerator[bytes, None]:
        decoders = make_decoders(self.coding)
        try:
            async for piece in read(self.sluice):
                for part in decoders.feed(piece):
                    await self.give_turn(decoders)
                    if part:
                        yield part
                await self.give_turn(decoders)       # perhaps there was no part
            decoders.end()
        except CodingError as error:    # a part is out: it cannot pass
            self.run.fail_for_good(self.stages[0], self.hook, str(error))

    async def gathered(self, stage: Stage, source: AsyncIterator[bytes]
                       ) -> AsyncGenerator[bytes, None]:
        """A filter of whole bodies among others."""
        body = self.run.collect()
        async for piece in source:
            has_room = body.add(piece)
            if not has_room or len(body) > stage.max_body:
                if has_room:
                    self.fail_long(stage)
                else:
                    self.run.fail(stage, self.hook, NO_ROOM)
                yield body.whole()
                if not has_room:
                    yield piece
                async for piece in source:
                    yield piece
                return
        yield await self.apply(stage, body.whole())

    # For the subclasses.

    def compare(self, before: bytes, after: bytes) -> None:
        """The whole body, as it came and as it is."""

    async def send_as_it_came(self, begun: list[bytes],
                              rest: AsyncIterator[bytes]) -> None:
        chunked = self.begin_as_it_came()
        for piece in begun:
            await write(self.sluice, piece, chunked)
        async for piece in rest:
            await write(self.sluice, piece, chunked)
        self.end(chunked, self.trailers(is_changed=False))

    async def send_whole(self, body: bytes, is_changed: bool) -> None:
        trailers = self.trailers(is_changed)
        chunked = bool(trailers)                # no other framing has room for them
        self.begin_whole(
            in_chunks(self.before) if chunked else of_length(len(body)), is_changed)
        await write(self.sluice, body, chunked)
        self.end(chunked, trailers)

    def begin_as_it_came(self) -> bool:
        """Sends the head with its own framing. True: the body is in chunks."""
        raise NotImplementedError

    def begin_whole(self, framing: str, is_changed: bool) -> None:
        """Sends the head of a body that is whole."""
        raise NotImplementedError

    def begin_stream(self) -> bool:
        """Sends the head of a body of unknown length. True: it is in chunks."""
        raise NotImplementedError


class _Down(_Passage):
    hook = "on_response_body"

    def __init__(self, run: Calls, response: Response, before: Headers) -> None:
        super().__init__(run, run.exchange.collect(), run.chain.response_bodies, before)
        self.response, self.before = response, before

    def restore_head(self, kept: tuple[Request, Response | None] | None) -> None:
        super().restore_head(kept)
        if kept is not None and kept[1] is not None:
            self.response = kept[1]

    def note(self, is_changed: bool) -> None:
        if is_changed or self.response._changed or (
                self.response.headers != self.before):
            self.run.exchange.note_changed(False)

    def begin_as_it_came(self) -> bool:
        self.note(False)
        framing = framing_of(self.before)
        chunked = "transfer-encoding" in self.before and self.run.minor > 0
        if "transfer-encoding" in self.before:
            framing = in_chunks(self.before) if chunked else ""
        self.run.exchange.send_head(build_response(self.response, framing))
        return chunked

    def trailers(self, is_changed: bool) -> list[tuple[str, str]]:
        if not self.run.minor:
            return []
        echoes = self.run.added.echoes if self.run.added else None
        return [(name, echoes.text(value) if echoes else value)
                for name, value in super().trailers(is_changed)]

    def begin_whole(self, framing: str, is_changed: bool) -> None:
        self.note(is_changed)
        if is_changed:
            self.drop_stale()
        self.run.exchange.send_head(build_response(self.response, framing))

    def begin_stream(self) -> bool:
        self.note(True)
        self.drop_stale()
        chunked = self.run.minor > 0
        self.run.exchange.send_head(
            build_response(self.response, in_chunks(self.before) if chunked else ""))
        return chunked

    def drop_stale(self) -> None:
        """Fields about the old body; one that a filter has set stays."""
        for name in about_body(self.response.headers):
            if self.response.headers.get(name) == self.before.get(name):
                del self.response.headers[name]


class _Up(_Passage):
    hook = "on_request_body"

    def __init__(self, run: Calls, sluice: Sluice) -> None:
        headers = run.flow.request.headers
        super().__init__(run, sluice, run.chain.request_bodies, headers)
        self.before = run.before

    async def whole(self) -> None:
        # The origin sees the head only when the body is there
        self.run.exchange.send_continue()
        del self.run.flow.request.headers["Expect"]
        await super().whole()

    def compare(self, before: bytes, after: bytes) -> None:
        """Hides the filters' additions, from captures and in echoes (R82)."""
        if before != after and self.run.chain.hides_bodies:
            self.run.exchange.hide_request_body()
            self.run.added_to().look_at_body(before, after)
            self.run.mask_echoes()

    def begin_as_it_came(self) -> bool:
        framing = framing_of(self.before)
        self.send(framing)
        return "transfer-encoding" in self.before

    def begin_whole(self, framing: str, is_changed: bool) -> None:
        if is_changed:
            self.run.exchange.note_changed(True)
            self.drop_stale()
        self.send(framing)

    def begin_stream(self) -> bool:
        self.run.exchange.note_changed(True)
        if self.run.chain.hides_bodies:
            self.run.exchange.hide_request_body()
        self.drop_stale()
        self.send(in_chunks(self.before))
        return True

    def drop_stale(self) -> None:
        headers = self.run.flow.request.headers
        for name in about_body(headers):
            if headers.get(name) == self.before.get(name):
                del headers[name]

    def send(self, framing: str) -> None:
        shown = self.run.look_for_added(framing)
        self.run.exchange.send_request(
            build_request(self.run.flow.request, framing), shown)


async def filter_request(run: Calls, sluice: Sluice) -> None:
    await _Up(run, sluice).go()


async def filter_response(run: Calls, response: Response, before: Headers) -> None:
    await _Down(run, response, before).go()
