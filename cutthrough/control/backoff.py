"""Who was wrong how often: how long an address waits, and whose turn comes first.

An address that guesses has to wait. A guesser with many addresses does not, and fills
the queue: so whoever waits in it has a rank by what came from its network before. The
rank refuses nobody; it only says who is last when there is more to compute than can be.
"""

from collections import OrderedDict
from enum import IntEnum

# Wrong ones in a row from an address until it has to wait: 1, 2, 4 … seconds.
FREE_FAILURES = 5
LONGEST_BACKOFF = 60.0
# After so long without another one they are forgotten.
FORGET_AFTER = 600.0
# Addresses remembered; the one that failed longest ago makes room.
MOST_ADDRESSES = 4096


class Backoff:
    """How often each client address was wrong in a row, and until when it waits."""

    def __init__(self, most: int = MOST_ADDRESSES) -> None:
        self._most = most
        self._failures: OrderedDict[bytes, tuple[int, float]] = OrderedDict()
        self.forgotten = 0

    def is_closed(self, client: bytes, now: float) -> bool:
        count, last = self._failures.get(client, (0, 0.0))
        return count >= FREE_FAILURES and now < last + backoff_of(count)

    def failures(self, client: bytes, now: float) -> int:
        """How many in a row, and not long ago."""
        count, last = self._failures.get(client, (0, 0.0))
        return count if now <= last + FORGET_AFTER else 0

    def fail(self, client: bytes, now: float) -> None:
        count = self.failures(client, now)
        self._failures.pop(client, None)
        if len(self._failures) >= self._most:
            self._failures.popitem(last=False)
            self.forgotten += 1
        self._failures[client] = (count + 1, now)

    def succeed(self, client: bytes) -> None:
        self._failures.pop(client, None)

    def __len__(self) -> int:
        return len(self._failures)


def backoff_of(failures: int) -> float:
    """Seconds after the n-th wrong one in a row: 0 to begin with, then 1, 2, 4 … 60."""
    if failures < FREE_FAILURES:
        return 0.0
    return min(LONGEST_BACKOFF, 2.0 ** min(failures - FREE_FAILURES, 10))


class Rank(IntEnum):
    """What is known of a network; the lower passes first."""

    KNOWN = 0           # somebody there was right before
    NEW = 1
    SUSPECT = 2         # the last ones were all wrong


def network_of(client: bytes) -> bytes:
    """The /24 of an IPv4 address; the /48, a site's (RFC 6177), of an IPv6 /64."""
    return client[:3] if len(client) == 4 else client[:6]


class Standing:
    """Which networks are known to be right, and which are only ever wrong."""

    def __init__(self, most: int = MOST_ADDRESSES) -> None:
        self._most = most
        self._wrong = Backoff(most)
        # Apart from the others, so that no number of guessers pushes these out
        self._right: OrderedDict[bytes, None] = OrderedDict()

    def rank(self, client: bytes, now: float) -> Rank:
        network = network_of(client)
        if self._wrong.failures(network, now) >= FREE_FAILURES:
            return Rank.SUSPECT
        return Rank.KNOWN if network in self._right else Rank.NEW

    def fail(self, client: bytes, now: float) -> None:
        self._wrong.fail(network_of(client), now)

    def succeed(self, client: bytes) -> None:
        network = network_of(client)
        self._wrong.succeed(network)
        self._right[network] = None
        self._right.move_to_end(network)
        if len(self._right) > self._most:
            self._right.popitem(last=False)
