"""Calls of filters: within a budget, and carried out when they return."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

from cutthrough.contained import reraise, resume
from cutthrough.exchange.work import Body
from cutthrough.filters.added import Added, Parts, parts_of
from cutthrough.filters.exchange import Ended, Exchange, write
from cutthrough.filters.flow import Flow, Headers, Response, has_no_body, headers_of
from cutthrough.filters.flow_heads import build_request, build_response, of_length
from cutthrough.filters.stage import Chain, Stage


class NoRoom(Exception):
    """For a body that is to be collected."""


class Calls:
    """The filters of one exchange, as far as any task of it needs them."""

    # What most exchanges never change is not set for each
    _owns_chain = False
    at_work = 0                         # functions that are suspended within a budget
    _before: Headers | None = None
    added: Added | None = None          # None: nothing yet

    def __init__(self, chain: Chain, exchange: Exchange, flow: Flow) -> None:
        self.chain, self.exchange, self.flow = chain, exchange, flow
        self._lines, self._path = flow.request._lines, flow.request.path

    @property
    def minor(self) -> int:
        """The client's HTTP/1.x."""
        return int(self.flow.request.version[-1])

    @property
    def wants_response(self) -> bool:
        return self.chain.sees_responses

    @property
    def before(self) -> Headers:
        """The request's fields as they came."""
        if self._before is None:
            self._before = headers_of(self._lines)
        return self._before

    def add(self, stage: Stage) -> None:
        """One filter more for this exchange, behind the others."""
        if not self._owns_chain:
            self.chain = Chain(self.chain.stages, self.chain.tally)
            self._owns_chain = True
        self.chain.add(stage)

    def collect(self) -> Body:
        """For a body of this exchange, until it is closed or dropped."""
        flow = self.flow
        return self.chain.tally.memory.open(flow.user or flow.client)

    def guard_at_once(self, stage: Stage, hook: str) -> bool:
        """As `guard`, for a head's function that cannot wait: no coroutine is made but
        its own."""
        function: Callable[[Flow], Any] = getattr(stage, hook)
        self.chain.tally.calls += 1
        began = time.monotonic()
        try:
            try:
                function(self.flow).send(None)
            except StopIteration:
                pass
            except BaseException as error:
                reraise(error)
            if time.monotonic() - began > stage.budget:
                raise TimeoutError
        except Exception as error:      # the operator's code: it may raise anything
            self.fail(stage, hook, error)
            self.flow._refusal, self.flow._answered = None, False
            return False
        return True

    async def guard(self, stage: Stage, hook: str, *args: Any,
                    may_refuse: bool = True) -> bool:
        """Calls a function of a filter. False: it failed, and what it did does not
        count. Raises Ended if the request is refused for that."""
        try:
            await self.call(stage, getattr(stage, hook), *args)
        except Exception as error:      # the operator's code: it may raise anything
            self.fail(stage, hook, error, may_refuse=may_refuse)
            self.flow._refusal, self.flow._answered = None, False
            return False
        return True

    def fail(self, stage: Stage, hook: str, error: BaseException | str,
             may_refuse: bool = True) -> None:
        """A fault. Raises Ended if it ends the request."""
        self.chain.tally.report(stage, hook, error)
        if not may_refuse or stage.on_fault == "pass":
            return
        label = ("filter_timeout" if isinstance(error, TimeoutError) else
                 "content_limit" if isinstance(error, NoRoom) else "filter_failed")
        self.exchange.refuse(label, stage.name)
        raise Ended

    def fail_for_good(self, stage: Stage, hook: str, error: BaseException | str
                      ) -> None:
        """A fault that cannot be passed."""
        self.fail(stage._replace(on_fault="refuse"), hook, error)

    async def call(self, stage: Stage, hook: Callable[..., Any], *args: Any) -> Any:
        """Awaits a function within its budget. One that does not suspend needs no
        timer. Raises TimeoutError beyond it."""
        self.chain.tally.calls += 1
        began = time.monotonic()
        coroutine = hook(*args)
        try:
            yielded = coroutine.send(None)
        except StopIteration as end:
            result = end.value
        except BaseException as error:
            reraise(error)
        else:
            self.at_work += 1
            try:
                result = await self.within(
                    stage.budget - (time.monotonic() - began),
                    resume(coroutine, yielded))
            finally:
                self.at_work -= 1
                self.exchange.note_held(round((time.monotonic() - began) * 1e6))
        if time.monotonic() - began > stage.budget:
            raise TimeoutError
        return result

    def note_shown(self, before: "Parts | None" = None) -> None:
        """The values that the request has gained are no secrets."""
        request = self.flow.request
        now = parts_of(request.headers, request.path)
        self.added_to().know(now - (before or set()))

    def added_to(self) -> Added:
        if self.added is None:
            self.added = Added()
            self.added.know(parts_of(self.before, self._path))
        return self.added

    def look_for_added(self, framing: str) -> bytes | None:
        """The head that may be shown; None: as it is. A request with another head has
        a filter more, which masks echoes."""
        if not self.chain.hides:
            return None
        shown = self.added_to().shown(self.flow.request)
        self.mask_echoes()
        return None if shown is None else build_request(shown, framing)

    def mask_echoes(self) -> None:
        added = self.added
        if added is not None and added.secrets:
            if added.echoes is None:
                self.add(added.stage())
            self.exchange.note_added(
                "\n".join(added.secrets).encode("latin-1", "replace"),
                added.find_echoes().cut)

    async def within(self, seconds: float, awaited: Any) -> Any:
        """`awaited`: a contained call. Raises TimeoutError beyond these seconds, and
        RuntimeError for a TimeoutError that is none for a budget."""
        try:
            async with asyncio.timeout(max(0.0, seconds)) as scope:
                return await awaited
        except TimeoutError as error:
            if scope.expired():
                raise
            raise RuntimeError("TimeoutError of its own") from error

    async def settle(self, stage: Stage) -> None:
        """Carries out a refusal or an answer. Raises Ended after it."""
        flow = self.flow
        if flow._refusal is not None:
            self.exchange.refuse(flow._label, f"{stage.name}: {flow._refusal}")
            raise Ended
        if flow._answered and flow.response is not None:
            await self.answer(flow.response)
            raise Ended

    async def answer(self, response: Response) -> None:
        body = response.body or b""
        framing = "" if has_no_body(response.status) else of_length(len(body))
        sluice = self.exchange.answer(build_response(response, framing))
        if self.flow.request.method != "HEAD":
            await write(sluice, body)
        sluice.finish()
