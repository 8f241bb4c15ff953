"""The only place that waits. A test names what must become true, and by when."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
TRIES = 8

# Generous: the deadline is for a proxy that hangs, not for a machine that is slow.
PATIENCE = 30.0


def takes_less(seconds: float, act: Callable[[], object], what: str = "it") -> None:
    """Runs `act` up to TRIES times; AssertionError where each of them took longer.

    For what is late when the proxy waits and should not: then each try is late. On a
    busy machine some are.
    """
    took = []
    for _ in range(TRIES):
        began = time.monotonic()
        act()
        took.append(time.monotonic() - began)
        if took[-1] < seconds:
            return
    raise AssertionError(f"{what} takes {min(took):.3f} s at least, not {seconds:g}")


def wait_until(
    probe: Callable[[], T], what: str | Callable[[], str], seconds: float = PATIENCE
) -> T:
    """Returns the first true answer of `probe`; AssertionError at the deadline."""
    deadline = time.monotonic() + seconds
    pause = 0.002
    while True:
        answer = probe()
        if answer:
            return answer
        if time.monotonic() >= deadline:
            told = what() if callable(what) else what
            raise AssertionError(f"after {seconds:g} s still not: {told}")
        time.sleep(pause)
        pause = min(pause * 1.5, 0.1)
