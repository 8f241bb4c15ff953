"""Breakpoints: an operator looks at a request or a response, and decides about it.

A message is held if an operator has armed breakpoints and the rule has one.
`Breakpoints` is of a worker, and knows the held messages. `Stop` is of one
exchange: the last filter of its chain, so that the operator sees what the filters have
left.

    request ─ held ─> (body ─ held) ─> the origin ─> response ─ held ─> (body ─ held)

A body is collected only if the operator wants to see or replace it, because a stream
may have no end. What is held goes on unchanged if the arming ends, if the worker
drains, and, unless the configuration says otherwise, if nobody decides in time.
"""

import asyncio
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol

from cutthrough.codings import CodingError, make_decoders
from cutthrough.exchange.redaction.redactor import (
    REDACTED,
    Options,
    Redactor,
    Unreadable,
)
from cutthrough.filters.calls import Calls
from cutthrough.filters.exchange import Exchange
from cutthrough.filters.flow import (
    FRAMING,
    Flow,
    Headers,
    Request,
    Response,
    check_field,
)
from cutthrough.filters.stage import OnFault, Stage, streams

# Bytes of a body that an operator sees, decoded
MOST_BODY = 1 << 20
# The time of a hold itself ends first: no deadline of the connection's state does
GRACE_S = 5.0
UNDECIDED = "breakpoint_undecided"

Side = Literal["request", "response"]
Result = Literal["passed", "edited", "aborted", "expired"]


class Decision(Protocol):
    """An operator's decision. None: unchanged."""

    @property
    def action(self) -> Literal["pass", "edit", "abort"]: ...
    @property
    def method(self) -> str | None: ...
    @property
    def path(self) -> str | None: ...
    @property
    def status(self) -> int | None: ...
    @property
    def fields(self) -> Sequence[tuple[str, str]] | None: ...
    @property
    def body(self) -> bytes | None: ...
    @property
    def hold_body(self) -> bool: ...


class Holding(NamedTuple):
    """How messages are held: for so many seconds; so many by a worker at a time, for
    each has a connection, and perhaps a body; an undecided one is refused."""

    seconds: float = 30.0
    refuses: bool = False
    most: int = 32


HOLDING = Holding()


class Held:
    """One message that waits. An operator sees what captures would have of it (R79); an
    edit with the same stand-in leaves the value as it is."""

    def __init__(self, flow: Flow, side: Side, may_collect: bool, body: bytes | None,
                 until: float, redactor: Redactor) -> None:
        self.flow, self.side, self.redactor = flow, side, redactor
        self.may_collect = may_collect  # its body can be asked for, and replaced
        self.body = body                # None: the head alone is held
        self.until = until
        self.decision: Decision | None = None
        self.decided: asyncio.Future[Result] = (
            asyncio.get_running_loop().create_future())

    @property
    def message(self) -> Request | Response:
        message = self.flow.request if self.side == "request" else self.flow.response
        assert message is not None
        return message

    def content(self) -> bytes | None:
        """The body as it is shown; None: it is not."""
        assert self.body is not None
        try:
            return self.redactor.content(
                self.body, self.message.headers.get("Content-Type") or "")
        except Unreadable:
            return None

    def about(self, number: int, left_s: float, whole: bool) -> dict[str, Any]:
        """For operators. `whole`: with the body."""
        flow = self.flow
        row = {
            "number": number, "side": self.side, "left_s": round(max(0.0, left_s), 1),
            "request": flow.id, "user": flow.user, "client": flow.client,
            "rule": flow.rule, "method": flow.request.method,
            "url": self.redactor.pairs(flow.request.url),
            "path": self.redactor.pairs(flow.request.path),
            "fields": [(name, self.redactor.field(name, value))
                       for name, value in self.message.headers],
            "body": ("here" if self.body is not None else
                     "follows" if self.may_collect else "none")}
        if self.side == "response" and flow.response is not None:
            row["status"] = flow.response.status
        if self.body is not None:
            row["body_bytes"] = len(self.body)
            if whole and (content := self.content()) is not None:
                row["content"] = b64encode(content).decode()
        return row

    def refuse(self, label: str, text: str) -> None:
        """The exchange ends with this outcome, once it is released."""
        self.flow._refusal, self.flow._label = text, label

    def release(self, result: Result) -> None:
        if not self.decided.done():
            self.decided.set_result(result)

    def decide(self, decision: Decision) -> None:
        """Carries out a decision. Raises ValueError, and then nothing has changed."""
        if decision.action == "abort":
            self.refuse("breakpoint_aborted", "aborted by an operator")
            self.release("aborted")
        elif decision.action == "pass":
            self.release("passed")
        else:
            self.check(decision)
            change(self.message.copy(), decision, self.redactor)
            change(self.message, decision, self.redactor)
            self.decision = decision
            self.release("edited")

    def check(self, decision: Decision) -> None:
        if self.side == "response" and (decision.method or decision.path):
            raise ValueError("a response has no method and no path")
        if self.side == "request" and decision.status:
            raise ValueError("a request has no status")
        if self.side == "request" and self.body is not None and (
                decision.method or decision.path):
            raise ValueError("the policy has judged method and path: they can be "
                             "edited before the body is held")
        if (decision.body is not None or decision.hold_body) and (
                self.body is None and not self.may_collect):
            raise ValueError("the message has no body, or one that cannot be collected")
        if decision.hold_body and self.body is not None:
            raise ValueError("the body is here")
        if decision.body is not None and self.body is not None and (
                self.content() != self.body and REDACTED.encode() in decision.body):
            raise ValueError(f"body: {REDACTED} stands for no value: leave the body "
                             "out, and it stays as it is")


def change(message: Request | Response, decision: Decision, redactor: Redactor
           ) -> None:
    """Raises ValueError."""
    if isinstance(message, Request):
        if decision.method is not None:
            message.method = decision.method
        path = decision.path
        if path is not None and path != redactor.pairs(message.path):
            if REDACTED in path:
                raise ValueError(f"path: {REDACTED} stands for no value")
            message.path = path
    elif decision.status is not None:
        message.status = decision.status
    if decision.fields is not None:
        message.headers._items = merge(
            message.headers, decision.fields, redactor)._items


def merge(old: Headers, fields: Sequence[tuple[str, str]], redactor: Redactor
          ) -> Headers:
    """The fields as the operator wants them: hidden values are the old ones, in their
    order, and the framing stays. Raises ValueError."""
    items = [(name, value) for name, value in old if name.lower() in FRAMING]
    before = {*old}
    hidden: dict[tuple[str, str], list[str]] = {}
    for name, value in old:
        if (shown := redactor.field(name, value)) != value:
            hidden.setdefault((name.lower(), shown), []).append(value)
    for name, value in fields:
        lower = name.lower()
        if lower in FRAMING:
            continue
        values = hidden.get((lower, value))
        if values:
            value = values.pop(0)
        elif REDACTED in value:
            raise ValueError(f"{name}: {REDACTED} stands for no value")
        if (name, value) not in before:
            check_field(name, value)
        items.append((name, value))
    return Headers.as_they_came(items)


def all_requests(method: str, host: str, path: str) -> bool:
    return True


class Breakpoints:
    """The breakpoints of one worker."""

    def __init__(self) -> None:
        self.on_armed: Callable[[bool], None] = lambda armed: None
        self.armed = False
        # By method, host and path
        self.chooses: Callable[[str, str, str], bool] = all_requests
        self.redactor = Redactor(Options())
        self.held: dict[int, Held] = {}
        # held: all that were. expired: nobody has decided. skipped: not held, because
        # too many were
        self.counts = dict.fromkeys(
            ("held", "passed", "edited", "aborted", "expired", "skipped"), 0)
        self._number = 0
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    def hide(self, redactor: Redactor) -> None:
        """From now on operators see its remainder."""
        self.redactor = redactor

    def arm(self, seconds: float,
            chooses: Callable[[str, str, str], bool] = all_requests) -> None:
        """For so many seconds, and the requests that `chooses` names; 0: not any more.
        """
        self.chooses = chooses
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._closed or seconds <= 0:
            self.disarm()
            return
        self._timer = asyncio.get_running_loop().call_later(seconds, self.disarm)
        self._set_armed(True)

    def disarm(self) -> None:
        """Held messages go on."""
        self._set_armed(False)
        for held in list(self.held.values()):
            held.release("expired")

    def close(self) -> None:
        """The worker ends: nobody can decide any more."""
        self._closed = True
        self.arm(0)

    def _set_armed(self, armed: bool) -> None:
        self.armed = armed
        self.on_armed(armed)

    def list(self, number: int = 0) -> list[dict[str, Any]]:
        """The held messages; with a number, its message with the body."""
        now = asyncio.get_running_loop().time()
        return [held.about(n, held.until - now, whole=bool(number))
                for n, held in self.held.items() if number in (0, n)]

    def decide(self, number: int, decision: Decision) -> str | None:
        """Returns why not, or ""; None: it is not held, or is decided."""
        held = self.held.get(number)
        if held is None or held.decided.done():
            return None
        try:
            held.decide(decision)
        except (ValueError, TypeError) as error:
            return str(error)
        return ""

    async def hold(self, exchange: Exchange, held: Held, holding: Holding) -> None:
        """Waits for a decision, and counts it."""
        seconds, refuses, most = holding
        request = held.flow.request
        if not self.armed or not self.chooses(
                request.method, request.host, request.path):
            return
        if len(self.held) >= most:
            self.counts["skipped"] += 1
            if refuses:
                held.refuse(UNDECIDED, f"the worker held {len(self.held)} others")
            return
        self._number += 1
        number = self._number
        self.counts["held"] += 1
        self.held[number] = held
        exchange.hold(int((seconds + GRACE_S) * 1000))
        timer = asyncio.get_running_loop().call_later(seconds, held.release, "expired")
        try:
            result = await held.decided
            self.counts[result] += 1
            # If they were disarmed meanwhile, it is not to be held at all
            if result == "expired" and refuses and self.armed:
                held.refuse(UNDECIDED, f"nobody decided in {seconds:g} s")
        finally:                        # also if the client has gone
            timer.cancel()
            del self.held[number]


class Stop:
    """The breakpoint of one exchange."""

    def __init__(self, breakpoints: Breakpoints, run: Calls, sides: str,
                 holding: Holding) -> None:
        self.breakpoints, self.run, self.holding = breakpoints, run, holding
        self.sides: tuple[str, ...] = (
            ("request", "response") if sides == "both" else (sides,))
        self.bodies: dict[Side, bytes | None] = {}      # those that operators gave

    def join(self) -> None:
        """Becomes a filter of the exchange, behind those of the rule."""
        self.run.add(self.make_stage(
            MOST_BODY, "pass",
            on_request_head=self.on_request_head if "request" in self.sides else None,
            on_response_head=(
                self.on_response_head if "response" in self.sides else None)))

    def make_stage(self, most: int, on_fault: OnFault, **hooks: Any) -> Stage:
        """An operator's edits are in log and captures."""
        return Stage("breakpoint", self.holding.seconds + GRACE_S, on_fault, most,
                     **hooks, shown=True)

    async def on_request_head(self, flow: Flow) -> None:
        headers = flow.request.headers
        has_body = "transfer-encoding" in headers or (
            headers.get("Content-Length", "0") != "0")
        await self.hold_head(flow, "request", has_body, headers)

    async def on_response_head(self, flow: Flow) -> None:
        assert flow.response is not None
        await self.hold_head(flow, "response", flow._has_body, flow.response.headers)

    async def on_request_body(self, flow: Flow, body: bytes) -> bytes | None:
        return await self.hold_body(flow, "request", body)

    async def on_response_body(self, flow: Flow, body: bytes) -> bytes | None:
        return await self.hold_body(flow, "response", body)

    async def hold_head(self, flow: Flow, side: Side, has_body: bool,
                        headers: Headers) -> None:
        hook, chain = f"on_{side}_body", self.run.chain
        others = chain.request_bodies if side == "request" else chain.response_bodies
        may_collect = has_body and is_readable(headers) and not any(
            streams(getattr(other, hook)) for other in others)
        held = self.make(flow, side, may_collect, None)
        await self.breakpoints.hold(self.run.exchange, held, self.holding)
        decision = held.decision
        if decision is None or not (decision.hold_body or decision.body is not None):
            return
        self.bodies[side] = decision.body
        # A body that was given and cannot be put in place ends the exchange
        self.run.add(self.make_stage(
            max([MOST_BODY, *(other.max_body for other in others)]),
            "pass" if decision.body is None else "refuse",
            **{hook: getattr(self, hook)}))

    async def hold_body(self, flow: Flow, side: Side, body: bytes) -> bytes | None:
        replacement = self.bodies.get(side)
        if replacement is not None:
            return replacement
        held = self.make(flow, side, False, body)
        await self.breakpoints.hold(self.run.exchange, held, self.holding)
        return held.decision.body if held.decision is not None else None

    def make(self, flow: Flow, side: Side, may_collect: bool,
             body: bytes | None) -> Held:
        return Held(flow, side, may_collect, body,
                    asyncio.get_running_loop().time() + self.holding.seconds,
                    self.breakpoints.redactor)


def is_readable(headers: Headers) -> bool:
    """Whether a body in this coding can be decoded."""
    try:
        make_decoders(",".join(headers.get_all("Content-Encoding")))
    except CodingError:
        return False
    return True
