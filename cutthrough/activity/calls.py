"""The calls of an activity tracker: in order, one at a time, and never waited for.

    an event ─> queue ─> a task ─> tracker.on_…(event)

An event takes a place in the queue. The task begins in the loop's next turn. It yields
to the loop after TURN, and an async function is cancelled after BUDGET. If the queue is
full, events are dropped and counted.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from cutthrough.contained import call, end

log = logging.getLogger("cutthrough")

HOOKS = ("on_connect", "on_client_tls", "on_disconnect", "on_request",
         "on_parent_failed", "on_origin", "on_origin_tls", "on_response", "on_bytes",
         "on_end")
# Events that wait: about 1 KiB each
MOST_QUEUED = 10_000
# Seconds of one call
BUDGET = 1.0
# Seconds of calls in one turn of the loop (R64)
TURN = 0.005


def functions_of(tracker: object) -> dict[str, Callable[..., Any]]:
    """The tracker's functions by name. Raises ValueError if it is no tracker."""
    functions: dict[str, Callable[..., Any]] = {}
    for hook in HOOKS:
        function = getattr(tracker, hook, None)
        if function is None:
            continue
        if not callable(function):
            raise ValueError(f"{hook} is not a function")
        functions[hook] = function
    if not functions:
        raise ValueError(f"has none of {', '.join(HOOKS)}")
    return functions


class Calls:
    """Calls `tracker` in `loop`. `budget`: seconds of one call; `most`: events that
    wait. Raises ValueError if it is no tracker."""

    def __init__(self, tracker: object, loop: asyncio.AbstractEventLoop, *,
                 budget: float = BUDGET, most: int = MOST_QUEUED) -> None:
        self._functions = functions_of(tracker)
        self._loop = loop
        self._budget = budget
        self._most = most
        self._queue: deque[tuple[str, tuple[Any, ...]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._is_running = False        # there is a task, or will be one
        self.calls = 0
        self.faults = 0                 # exceptions
        self.overruns = 0               # calls beyond the budget
        self.dropped = 0                # events without a place
        self.spent = 0.0                # seconds from each call to its end

    def wants(self, hook: str) -> bool:
        """Whether the tracker has this function."""
        return hook in self._functions

    def put(self, hook: str, *args: Any) -> bool:
        """Has the function called, if the tracker has it. False: there is no place."""
        if hook not in self._functions:
            return True
        if len(self._queue) >= self._most:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # the 1st, 2nd, 4th, 8th …
                log.error("the activity hook is too slow: %d events were dropped so "
                          "far", self.dropped)
            return False
        self._queue.append((hook, args))
        if not self._is_running:
            self._is_running = True
            # Not at once: a loop may run a new task before it returns
            self._loop.call_soon(self._begin)
        return True

    async def settle(self, seconds: float = BUDGET) -> None:
        """Waits until all events are reported, at most `seconds`; drops the rest."""
        deadline = self._loop.time() + seconds
        while self._is_running and self._loop.time() < deadline:
            if self._task is None:
                await asyncio.sleep(0)
            else:
                await asyncio.wait(
                    {self._task}, timeout=deadline - self._loop.time())
        self._queue.clear()
        if self._task is not None:
            await end({self._task})

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._run())
        self._task.add_done_callback(self._on_done)

    def _on_done(self, task: "asyncio.Task[None]") -> None:
        self._task = None
        self._is_running = bool(self._queue)
        if self._is_running:            # a function has cancelled the task
            self._begin()

    async def _run(self) -> None:
        began = time.monotonic()
        while self._queue:
            hook, args = self._queue.popleft()
            await self._call(hook, args)
            if time.monotonic() - began > TURN:
                await asyncio.sleep(0)
                began = time.monotonic()

    async def _call(self, hook: str, args: tuple[Any, ...]) -> None:
        self.calls += 1
        began = time.monotonic()
        scope = asyncio.timeout(self._budget)
        try:
            async with scope:
                await call(self._functions[hook], *args)
        except TimeoutError as error:
            if not scope.expired():
                self._report(hook, f"TimeoutError: {error}")
        except Exception as error:      # the operator's code: it may raise anything
            self._report(hook, f"{type(error).__name__}: {error}")
        took = time.monotonic() - began
        self.spent += took
        if scope.expired() or took >= self._budget:
            self.overruns += 1
            if self.overruns & (self.overruns - 1) == 0:
                log.error("the activity hook took more than %g s in %s (%d so far)",
                          self._budget, hook, self.overruns)

    def _report(self, hook: str, reason: str) -> None:
        self.faults += 1
        if self.faults & (self.faults - 1) == 0:        # the 1st, 2nd, 4th, 8th …
            log.error("the activity hook failed in %s (%d so far): %s", hook,
                      self.faults, reason)
