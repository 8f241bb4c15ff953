"""A loop whose time is the test's: what is called later is called by `advance`."""

import asyncio
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any


class Clock:
    """Has what a verifier asks of an event loop."""

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
        """As TimerHandle.cancel asks it of its loop."""

    def get_debug(self) -> bool:
        return False

    def step(self) -> None:
        """Time passes until something is due."""
        self.advance(max(0.0, self._due[0][0] - self.now))

    def advance(self, seconds: float) -> None:
        """Time passes; what is due meanwhile is called, each at its time."""
        end = self.now + seconds
        while self._due and self._due[0][0] <= end:
            at, _, timer = heapq.heappop(self._due)
            self.now = max(self.now, at)
            if not timer.cancelled():
                timer._run()
        self.now = end
