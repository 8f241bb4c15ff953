"""Drives the filters of one exchange: tasks that call them, and obey.

    start ─> on_request_head … ─> go_on ─> the origin
    on_upload ─> on_request_body …          while the request's body goes up
    on_response ─> on_response_head … ─> on_response_body …
    end ─> on_end …

Each arrow from the session starts a task, unless no function that it calls can wait.
The end of the exchange cancels the tasks that still run. A filter's decision is carried
out when its function has returned. A fault or an exceeded budget refuses the request,
or passes the message unchanged.
"""

import asyncio
import contextlib
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from cutthrough.codings import accepted
from cutthrough.contained import Begun, resume
from cutthrough.filters import bodies
from cutthrough.filters.added import Added, Parts, parts_of
from cutthrough.filters.calls import Calls
from cutthrough.filters.collected import Collected
from cutthrough.filters.exchange import Ended, Sluice
from cutthrough.filters.flow import Request, Response, headers_of
from cutthrough.filters.flow_heads import (
    build_request,
    build_response,
    framing_of,
    read_response,
)
from cutthrough.filters.stage import Stage
from cutthrough.filters.websocket import Conversation

log = logging.getLogger("cutthrough")

# A deflated message could not be read
_EXTENSIONS = "Sec-WebSocket-Extensions"


class Run(Calls):
    """The filters of one exchange at work."""

    waiting = 0                         # tasks that have not begun
    conversation: Conversation | None = None
    _tasks: set[Begun[None]] | None = None      # None: none so far

    @property
    def tasks(self) -> set[Begun[None]]:
        if self._tasks is None:
            self._tasks = set()
        return self._tasks

    # Called by the session.

    @property
    def wants_upload(self) -> bool:
        """A breakpoint may have added itself."""
        return bool(self.chain.request_bodies)

    @property
    def wants_messages(self) -> bool:
        return bool(self.chain.messages)

    def start(self) -> None:
        if self.chain.requests_at_once:
            self._run_at_once(self._request_at_once)
        else:
            self._begin(self._on_request)

    def on_upload(self, sluice: Sluice) -> None:
        self._begin(self._on_upload, sluice)

    def on_collect(self, sluice: Sluice) -> Collected:
        """The request's body goes to a reader before it goes up, or nowhere."""
        collected = Collected(sluice)
        self._begin(self._on_upload, collected.filters_side)
        return collected

    def on_response(self, head: bytes, has_body: bool) -> None:
        chain, flow = self.chain, self.flow
        flow._response = response = read_response(head)
        flow._has_body = has_body
        reads_body = has_body and (chain.response_bodies or self.wants_echoes)
        if chain.responses_at_once and not reads_body:
            self._run_at_once(self._response_at_once, response)
        else:
            self._begin(self._on_response, response)

    def on_websocket(self, up: Sluice, down: Sluice) -> None:
        self.conversation = Conversation(self, self.chain.messages, up, down)
        for is_up in (True, False):
            self._begin(self.conversation.go, is_up)

    def on_refused(self, label: str, text: str) -> None:
        """Closes the conversation of a WebSocket that was refused."""
        if self.conversation is not None:
            self.conversation.close(label, text)

    def on_unfit(self, hook: str, reason: str) -> None:
        """Reports that a message cannot be sent as the filters with this function left
        it: the session refuses it."""
        chain = self.chain.stages
        stages = [stage for stage in chain if getattr(stage, hook, None)] or chain
        name = ", ".join(stage.name for stage in stages)
        self.chain.tally.report(stages[-1]._replace(name=name), hook, reason)

    def end(self, label: str) -> None:
        """The exchange has ended. Idempotent."""
        if self.flow.outcome:
            return
        self.flow.outcome = label
        self.conversation = None        # each has the other
        if self._tasks is not None:
            for task in list(self._tasks):
                self._cancel(task)
        if self.chain.ends:
            self._begin(self._on_end)

    def _begin(self, function: Callable[..., Awaitable[None]], *args: Any) -> None:
        """No coroutine: it would not be awaited if the task does not begin."""
        task = Begun(self._contain(function, *args))
        self.tasks.add(task)
        self.chain.tally.running.add(task)
        self.waiting += 1

    def _run_at_once(self, function: Callable[..., None], *args: Any) -> None:
        """No function of a filter can wait: a task would take 4 µs more, and a
        coroutine 0.4. The context is of this call alone, as a task's is, or a variable
        that a filter sets would be that of the requests that follow (0.2 µs)."""
        try:
            contextvars.copy_context().run(function, *args)
        except Ended:
            return
        except Exception:
            self._note_fault()

    def _begin_at_once(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs a coroutine at once; it becomes a task if a peer is slow."""
        try:
            yielded = coroutine.send(None)
        except StopIteration:
            return
        self._begin(resume, coroutine, yielded, False)

    async def _settle(self, stage: Stage) -> None:
        with contextlib.suppress(Ended):
            await self.settle(stage)

    async def _contain(self, function: Callable[..., Awaitable[None]], *args: Any
                       ) -> None:
        """A fault of our own ends this exchange alone. The task forgets itself: a
        callback would be a call of the loop, and there would be two."""
        self.waiting -= 1
        try:
            await function(*args)
        except asyncio.CancelledError:
            if self.flow.outcome:
                raise
            self._note_cancelled()
        except Exception:
            self._note_fault()
        finally:
            self._forget(asyncio.current_task())

    def _note_cancelled(self) -> None:
        """Notes that some code of the operator's cancelled the task. The exchange does
        not: it would wait."""
        names = ", ".join(stage.name for stage in self.chain.stages)
        self.chain.tally.report(self.chain.stages[-1]._replace(name=names), "its task",
                                "the task was cancelled")
        self.exchange.refuse("filter_failed", names)

    def _note_fault(self) -> None:
        try:
            log.exception("a filter could not be driven")
        finally:                        # of memory there may be none for a line
            self.exchange.refuse("internal_error", "")

    def _forget(self, task: "asyncio.Task[None] | None") -> None:
        if task is not None:
            self.tasks.discard(task)
            self.chain.tally.running.discard(task)

    def _cancel(self, task: Begun[None]) -> None:
        if self.waiting:                # perhaps this one: then no step of it will run
            task.add_done_callback(self._forget)
        task.end()

    # The tasks.

    async def _on_request(self) -> None:
        flow = self.flow
        try:
            for stage in self.chain.request_heads:
                kept = self._keep_request(stage)
                done = await self.guard(stage, "on_request_head", flow)
                self._restore_request(kept, done)
                if flow._refusal is not None or flow._answered:
                    await self.settle(stage)
        except Ended:
            return
        self._pass_request()

    def _request_at_once(self) -> None:
        flow = self.flow
        for stage in self.chain.request_heads:
            kept = self._keep_request(stage)
            done = self.guard_at_once(stage, "on_request_head")
            self._restore_request(kept, done)
            if flow._refusal is not None or flow._answered:
                self._begin_at_once(self._settle(stage))
                return
        self._pass_request()

    def _keep_request(self, stage: Stage) -> tuple[Request | None, Parts | None] | None:
        """Returns copies of the request that a filter may have to get back, or to be
        compared with."""
        if stage.on_fault != "pass" and not stage.shown:
            return None
        request = self.flow.request
        return (request.copy() if stage.on_fault == "pass" else None,
                parts_of(request.headers, request.path)
                if stage.shown and self.chain.hides else None)

    def _restore_request(self, kept: tuple[Request | None, Parts | None] | None,
                         done: bool) -> None:
        if kept is None:
            return
        original, before = kept
        if not done and original is not None:
            self.flow._request = original
        if before is not None:
            self.note_shown(before)

    def _pass_request(self) -> None:
        flow = self.flow
        is_changed = self._is_changed()
        shown = self.look_for_added(framing_of(self.before)) if is_changed else None
        if self.chain.response_bodies:
            self._prepare_for_bodies()
        elif self.wants_echoes:
            self._offer_codings()
        if self.chain.messages and _EXTENSIONS in flow.request.headers:
            del flow.request.headers[_EXTENSIONS]
        self.exchange.go_on(self._changed_request(), shown)

    @property
    def wants_echoes(self) -> bool:
        return self.added is not None and self.added.echoes is not None

    def _prepare_for_bodies(self) -> None:
        """A part of a body cannot be filtered, and neither can an unknown coding."""
        headers = self.flow.request.headers
        for name in ("Range", "If-Range"):
            del headers[name]
        self._offer_codings()

    def _offer_codings(self) -> None:
        headers = self.flow.request.headers
        offered = headers.get_all("Accept-Encoding")
        if offered:
            headers["Accept-Encoding"] = accepted(",".join(offered))

    def _is_changed(self) -> bool:
        now = self.flow.request
        return now._changed or not (now._headers is None or now.headers == self.before)

    def _changed_request(self) -> bytes | None:
        return build_request(self.flow.request, framing_of(self.before)) if (
            self._is_changed()) else None

    async def _on_upload(self, sluice: Sluice) -> None:
        try:
            await bodies.filter_request(self, sluice)
        except Ended:
            return

    async def _on_response(self, response: Response) -> None:
        flow, lines = self.flow, response._lines
        try:
            for stage in self.chain.response_heads:
                original = response.copy() if stage.on_fault == "pass" else None
                done = await self.guard(stage, "on_response_head", flow)
                if not done and original is not None:
                    flow._response = response = original
                if flow._refusal is not None or flow._answered:
                    await self.settle(stage)
            if flow._has_body and self.added is not None and self.added.echoes:
                self._mask_body(self.added, response)
            if flow._has_body and self.chain.response_bodies:
                await bodies.filter_response(self, response, headers_of(lines))
                return
        except Ended:
            return
        self._pass_response(response, lines)

    def _response_at_once(self, response: Response) -> None:
        flow, lines = self.flow, response._lines
        for stage in self.chain.response_heads:
            original = response.copy() if stage.on_fault == "pass" else None
            done = self.guard_at_once(stage, "on_response_head")
            if not done and original is not None:
                flow._response = response = original
            if flow._refusal is not None or flow._answered:
                self._begin_at_once(self._settle(stage))
                return
        self._pass_response(response, lines)

    def _pass_response(self, response: Response, lines: str) -> None:
        """`lines`: its fields as they came."""
        if not response._changed and (
                response._headers is None or response.headers == headers_of(lines)):
            self.exchange.pass_response(None)
        else:
            self.exchange.pass_response(
                build_response(response, framing_of(headers_of(lines))))

    def _mask_body(self, added: Added, response: Response) -> None:
        stage = added.stage_of_body(response, self.chain.response_bodies)
        if stage is not None:
            self.add(stage)

    async def _on_end(self) -> None:
        for stage in self.chain.ends:
            await self.guard(stage, "on_end", self.flow, may_refuse=False)
