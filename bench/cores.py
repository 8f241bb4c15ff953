"""Which core runs what, where the scheduler's choice would be measured instead.

One request at a time is a chain of wake-ups, and what each costs depends on where the
woken one sleeps: 10 µs on the waker's core, 20 on another that has gone to rest. The
scheduler may choose either, for as long as a run lasts. Placed, all proxies pay alike.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

import psutil

USABLE = sorted(os.sched_getaffinity(0))
#: Cores of the client and the origin, and of the proxy.
PLACES = {
    "": (USABLE, USABLE),
    "one": (USABLE[:1], USABLE[:1]),
    "apart": (USABLE[:1], USABLE[-1:]),
}


def _place(tree: list[psutil.Process], cores: list[int]) -> None:
    for process in tree:
        for thread in process.threads():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(thread.id, cores)


@contextlib.contextmanager
def placed(
    place: str, proxy: list[psutil.Process], origin: list[psutil.Process]
) -> Iterator[None]:
    """Keep them there, and whatever is started meanwhile beside the origin."""
    near, far = PLACES[place]
    if place:
        _place(proxy, far)
        _place(origin, near)
        os.sched_setaffinity(0, near)
    try:
        yield
    finally:
        if place:
            os.sched_setaffinity(0, USABLE)
            _place(origin, USABLE)
