"""The work of filters in a turn of the loop: bounded, for all exchanges of a worker.

Bytes come out of C within a bound for each turn, but a few of them may be much work: a
coding inflates them, or each two are a frame. If the work of a turn exceeds its bound,
the rest waits for the next turn (R64), and each task does one step there at least.
"""

import asyncio

# Bytes that are decoded before others have their turn: gzip makes 1 MiB in 2 ms
OF_TURN = 1 << 20


class Turn:
    """The turn of a worker."""

    def __init__(self) -> None:
        self._left = OF_TURN
        self._is_begun = False

    def spend(self, work: int) -> bool:
        """`work`: in bytes, or what takes as long. True: others come first, by
        `await asyncio.sleep(0)`."""
        if not self._is_begun:
            self._is_begun = True
            asyncio.get_running_loop().call_soon(self._end)
        self._left -= work
        return self._left < 0

    def _end(self) -> None:
        self._left, self._is_begun = OF_TURN, False
