"""The only module that waits. A test gives a condition and a deadline."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TRIES = 8

# Generous, because the deadline is for a proxy that hangs, not for a slow machine.
PATIENCE = 30.0


def takes_less(seconds: float, act: Callable[[], object], what: str = "it") -> float:
    """Runs `act` up to TRIES times; returns the seconds of the first try that took
    less. Raises AssertionError if every try took longer.

    If the proxy waits when it should not, every try is late; on a busy machine only
    some are.
    """
    took = []
    for _ in range(TRIES):
        began = time.monotonic()
        act()
        took.append(time.monotonic() - began)
        if took[-1] < seconds:
            return took[-1]
    raise AssertionError(f"{what} takes {min(took):.3f} s at least, not {seconds:g}")


def wait_until(
    probe: Callable[[], T], what: str | Callable[[], str], seconds: float = PATIENCE,
    longest_pause: float = 0.1,
) -> T:
    """Returns the first true result of `probe`. AssertionError at the deadline."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            details = what() if callable(what) else what
            raise AssertionError(f"after {seconds:g} s still not: {details}")
        time.sleep(pause)
        pause = min(pause * 1.5, longest_pause)
