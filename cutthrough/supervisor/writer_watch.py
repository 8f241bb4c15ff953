"""Notices that the writer of captured exchanges hangs: neither its loop nor its disk
moves.

Its loop counts its turns in a ring (tape/ring.pyx), some each second. A turn may
take long on a slow disk, so the bytes that the process reads and writes count as well.
A writer that is stopped, that waits for a disk which does not answer, or that never
comes to an end of its work, moves neither.
"""

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path

# Between two looks, and so many of them without a move: 30 s. Looks count, not time:
# the whole service may have been stopped
LOOK_S = 3.0
MOST_STILL = 10


class WriterWatch:
    """Until `end`."""

    def __init__(self, pid: int, beats: Callable[[], int], on_hung: Callable[[], None]
                 ) -> None:
        self._pid, self._beats, self._on_hung = pid, beats, on_hung
        self._state: tuple[int, str] | None = None
        self._still = 0
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def end(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        state = self._beats(), moved_of(self._pid)
        self._still = self._still + 1 if state == self._state else 0
        self._state = state
        if self._still >= MOST_STILL:
            self._on_hung()
            return
        self._timer = asyncio.get_running_loop().call_later(LOOK_S, self._look)


def moved_of(pid: int) -> str:
    """The bytes that a process has read and written so far; "": it cannot be seen."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/io").read_text()
    return ""
