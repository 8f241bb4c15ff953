"""Notices that a process hangs: nothing of it moves.

Whoever waits for a process names what moves if it works. A turn of the writer of
captured exchanges may take long on a slow disk, so the bytes that the process reads and
writes count beside its turns. A process that computes uses CPU time, however few of it
are free. A process that is stopped, or waits for a disk that does not answer, moves
neither.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

# Between two looks, and so many of them without a move: 30 s. Looks count, not time:
# the whole service may have been stopped
LOOK_S = 3.0
MOST_STILL = 10


class HangWatch:
    """Until `end`."""

    def __init__(self, look: Callable[[], object], on_hung: Callable[[], None]) -> None:
        """`look`: what moves if the process works."""
        self._look_at, self._on_hung = look, on_hung
        self._state: object = None
        self._still = 0
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        state = self._look_at()
        self._still = self._still + 1 if state == self._state else 0
        self._state = state
        if self._still >= MOST_STILL:
            self._on_hung()
            return
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)


def moved_by(pid: int) -> str:
    """The bytes that a process has read and written so far; "": it cannot be seen."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/io").read_text()
    return ""


def cpu_of(pid: int) -> object:
    """The CPU time of a process so far; if it cannot be seen, nothing else is equal."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[11:13]                 # proc(5): utime and stime, in ticks
    return object()
