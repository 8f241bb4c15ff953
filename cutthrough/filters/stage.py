"""Filters, ready to run: their functions, budgets, and counts."""

import asyncio
import dis
import functools
import inspect
import logging
from collections.abc import Callable, Sequence
from types import CodeType, FunctionType
from typing import Any, Literal, NamedTuple

from cutthrough.contained import end
from cutthrough.exchange.work import MOST_COLLECTED, Memory
from cutthrough.filters.turns import Turn

log = logging.getLogger("cutthrough")

OnFault = Literal["refuse", "pass"]
HOOKS = ("on_connect", "on_request_head", "on_request_body", "on_response_head",
         "on_response_body", "on_websocket_message", "on_end")
BODIES = ("on_request_body", "on_response_body")


class Stage(NamedTuple):
    """One filter. A function is None if the filter has none of that name."""

    name: str
    budget: float                       # seconds
    on_fault: OnFault
    max_body: int                       # bytes, decoded
    on_request_head: Callable[..., Any] | None = None
    on_request_body: Callable[..., Any] | None = None
    on_response_head: Callable[..., Any] | None = None
    on_response_body: Callable[..., Any] | None = None
    on_websocket_message: Callable[..., Any] | None = None
    on_end: Callable[..., Any] | None = None
    shown: bool = False                 # its additions are in log and captures (R82)
    on_connect: Callable[..., Any] | None = None

    def of_tunnels(self) -> "Stage":
        """The part of it that sees tunnels."""
        return Stage(self.name, self.budget, self.on_fault, self.max_body,
                     on_end=self.on_end, on_connect=self.on_connect)


def make_stage(name: str, filter: object, budget: float, on_fault: OnFault,
               max_body: int, shown: bool = False) -> Stage:
    """Raises ValueError if the object is no filter."""
    functions = {hook: getattr(filter, hook, None) for hook in HOOKS}
    for hook, function in functions.items():
        fits = function is None or inspect.iscoroutinefunction(function) or (
            hook in BODIES and inspect.isasyncgenfunction(function))
        if not fits:
            raise ValueError(f"{hook} is not an async function")
    if not any(functions.values()):
        raise ValueError(f"has none of {', '.join(HOOKS)}")
    return Stage(name, budget, on_fault, max_body, **functions, shown=shown)


def streams(hook: Callable[..., Any]) -> bool:
    """Whether this function of a body is an async generator."""
    return inspect.isasyncgenfunction(hook)


def may_wait(hook: Callable[..., Any]) -> bool:
    """Whether this function has an `await`: no other can be suspended. True, too, if
    that is not known: the code object of a function that Cython has compiled is empty,
    and one that is marked as async may return any coroutine."""
    function = getattr(hook, "__func__", hook)
    return not (isinstance(function, FunctionType)
                and function.__code__.co_flags & inspect.CO_COROUTINE
                ) or _yields(function.__code__)


@functools.lru_cache(1024)              # an exchange that adds a filter asks for all
def _yields(code: CodeType) -> bool:
    return any(step.opname == "YIELD_VALUE" for step in dis.get_instructions(code))


class Tally:
    """The counts of one worker's filters, over all generations, its bound for the
    bodies that they collect, and for their work in a turn."""

    def __init__(self, memory: Memory | None = None) -> None:
        self.memory = memory or Memory(MOST_COLLECTED)
        self.turn = Turn()
        self.calls = 0                  # of functions
        self.faults = 0                 # exceptions, bodies too long or not decoded
        self.overruns = 0               # budgets exceeded
        self.running: set[asyncio.Task[None]] = set()

    def report(self, stage: Stage, hook: str, error: BaseException | str) -> None:
        """Counts a fault. The 1st, 2nd, 4th, 8th … are logged."""
        if isinstance(error, TimeoutError):
            self.overruns += 1
            count, reason = self.overruns, f"more than {stage.budget * 1000:g} ms"
        else:
            self.faults += 1
            count = self.faults
            reason = error if isinstance(error, str) else (
                f"{type(error).__name__}: {error}")
        if count & (count - 1) == 0:
            log.error("the filter %s failed in %s (%d so far): %s", stage.name, hook,
                      count, reason)

    async def close(self) -> None:
        """Cancels its tasks."""
        await end(self.running)
        self.running.clear()            # one that had not begun does not forget itself


class Chain:
    """Several filters, one after the other. That of a rule is of all its exchanges; an
    exchange that adds a filter has one of its own."""

    def __init__(self, stages: Sequence[Stage], tally: Tally) -> None:
        self.tally = tally
        self.stages: list[Stage] = []
        self.connects: list[Stage] = []
        self.request_heads: list[Stage] = []
        self.request_bodies: list[Stage] = []
        self.response_heads: list[Stage] = []
        self.response_bodies: list[Stage] = []
        self.messages: list[Stage] = []
        self.ends: list[Stage] = []
        self.sees_responses = False
        # No function for heads waits: each is called at once, without a task
        self.connects_at_once = True
        self.requests_at_once = self.responses_at_once = True
        # Does any function see a request, and hide its additions?
        self.hides = self.hides_bodies = False
        # All functions before the request goes on, and 5 s because a loop may be slow
        self.head_ms = 5000
        for stage in stages:
            self.add(stage)

    def add(self, stage: Stage) -> None:
        """Adds a filter behind the others."""
        self.stages.append(stage)
        if stage.on_connect:
            self.connects.append(stage)
            self.connects_at_once &= not may_wait(stage.on_connect)
            self.head_ms += int(stage.budget * 1000)
        if stage.on_request_head:
            self.request_heads.append(stage)
            self.requests_at_once &= not may_wait(stage.on_request_head)
            self.head_ms += int(stage.budget * 1000)
        if stage.on_request_body:
            self.request_bodies.append(stage)
            self.hides_bodies |= not stage.shown
        if stage.on_response_head:
            self.response_heads.append(stage)
            self.responses_at_once &= not may_wait(stage.on_response_head)
        if stage.on_response_body:
            self.response_bodies.append(stage)
        self.sees_responses = bool(self.response_heads or self.response_bodies)
        if stage.on_websocket_message:
            self.messages.append(stage)
        if stage.on_end:
            self.ends.append(stage)
        if stage.on_request_head or stage.on_request_body:
            self.hides |= not stage.shown
