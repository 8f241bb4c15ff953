"""Answers that are given late: how many at a time, and of one client.

A request that is held costs its connection and a timer. Beyond the bounds nothing is
held: the caller answers at once, with the time after which to come back.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

# Of one worker: some 1 KiB each. Of one client: four refusals a second at 4 s each
MOST_HELD = 256
MOST_OF_CLIENT = 16


class Tarpit:
    """Calls back later; nobody is called after `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = MOST_HELD,
                 most_of_client: int = MOST_OF_CLIENT) -> None:
        self._loop = loop
        self._most = most
        self._most_of_client = most_of_client
        self._held: dict[int, asyncio.TimerHandle] = {}
        self._of_client: Counter[bytes] = Counter()
        self._next = 0
        self.full = 0                       # times that there was no place (R31)

    def hold(self, client: bytes, seconds: float, call: Callable[[], None]) -> bool:
        """Has it called after so long. False: there is no place, and it is not."""
        if (len(self._held) >= self._most
                or self._of_client[client] >= self._most_of_client):
            self.full += 1
            return False
        self._next += 1
        self._of_client[client] += 1
        self._held[self._next] = self._loop.call_later(
            seconds, partial(self._let_go, self._next, client, call))
        return True

    def _let_go(self, number: int, client: bytes, call: Callable[[], None]) -> None:
        del self._held[number]
        self._of_client[client] -= 1
        if not self._of_client[client]:
            del self._of_client[client]
        call()

    def __len__(self) -> int:
        return len(self._held)

    def close(self) -> None:
        for timer in self._held.values():
            timer.cancel()
        self._held.clear()
        self._of_client.clear()
