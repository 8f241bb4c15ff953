"""An event loop with a manual clock: `advance` runs the timers that are due."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any


class Clock:
    """Implements the part of an event loop that a verifier uses."""

    def __init__(self, now: float = 1_000.0) -> None:
        self.now = now
        self._due: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._order = count()

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[..., Any],
                   *args: Any) -> asyncio.TimerHandle:
        at = self.now + seconds
        timer = asyncio.TimerHandle(at, call, args, self)  # type: ignore[arg-type]
        heapq.heappush(self._due, (at, next(self._order), timer))
        return timer

    def _timer_handle_cancelled(self, timer: asyncio.TimerHandle) -> None:
        """Called by TimerHandle.cancel."""

    def get_debug(self) -> bool:
        return False

    def step(self) -> None:
        """Advances the time to the next timer."""
        self.advance(max(0.0, self._due[0][0] - self.now))

    def advance(self, seconds: float) -> None:
        """Advances the time; runs each timer that falls due, at its own time."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            at, _, timer = heapq.heappop(self._due)
            self.now = max(self.now, at)
            if not timer.cancelled():
                timer._run()
        self.now = end
