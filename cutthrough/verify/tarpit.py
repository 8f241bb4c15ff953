"""Delayed answers, bounded in number, in total and for each client.

A delayed request costs its connection and a timer. Beyond the bounds no answer is
delayed: the caller answers at once, with the time after which the client may try again.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import partial

# Per worker: about 1 KiB each. Per client: four refusals a second at 4 s each
MOST_HELD = 256
MOST_OF_CLIENT = 16


class Tarpit:
    """Calls back later; no callback runs after `close`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, most: int = MOST_HELD,
                 most_of_client: int = MOST_OF_CLIENT) -> None:
        self._loop = loop
        self._most = most
        self._most_of_client = most_of_client
        self._held: dict[int, asyncio.TimerHandle] = {}
        self._of_client: Counter[bytes] = Counter()
        self._next = 0
        self.full = 0                       # delays refused because of a bound (R31)

    def hold(self, client: bytes, seconds: float, call: Callable[[], None]) -> bool:
        """Schedules `call`. Returns False, and does not, if a bound is reached."""
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
