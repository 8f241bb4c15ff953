"""Counts failed logins: how long the next try waits, and its rank in the hash queue.

Failures are counted by client address and user name. After five in a row the next try
waits 1, 2, 4 … seconds; other names at the same address do not wait. Unknown names are
treated alike, so that the wait does not reveal whether a name exists (R22). An address
with more failures, whatever the names, gets its refusals late.

A guesser with many addresses has many budgets and could fill the hash queue, so each
request in the queue has a rank from the history of its network. The rank refuses no
request; it only decides the order when requests come faster than hashes.

All counts are on the page that the workers share (`policy.known`): an address has one
budget, not one per worker, and a respawned worker continues with it.
"""

from enum import IntEnum

from cutthrough.policy.known import GUESSES, PLACES, RIGHT, STRANGERS, Known

# Failures in a row of one name from one address before the next try waits
FREE_FAILURES = 5
# Failures in a row from one address, of any names, before its refusals are delayed: a
# whole site behind one address mistypes more often than one user
FREE_FAILURES_OF_ADDRESS = 20
# Default of `auth_backoff`
LONGEST_BACKOFF = 60.0
# Failures are forgotten this many seconds after the last one, or after ten times the
# longest wait if that is more: else pausing would pay off for a guesser
FORGET_AFTER = 600.0
FORGET_WAITS = 10
# Longest delay of a try or a refusal. A try that must wait longer is answered 429 at
# once; shorter waits are sat out, because browsers prompt their user again only on 407.
# Less than half of auth_timeout, which must cover the hash as well
LONGEST_HOLD = 4.0


def is_exempt(client: bytes) -> bool:
    """Is this client on this host, over loopback? Its users share one address, so that
    a back-off would also lock out the others. Callers of a Unix socket have one each
    (net.address, from_unix)."""
    return client[:1] == b"\x7f" if len(client) == 4 else not any(client)


class Backoff:
    """Counts failures by client and name, and computes the waits.

    A client is the bytes of an IPv4 address, or of the /64 of an IPv6 address.
    """

    def __init__(self, known: Known, longest: float = LONGEST_BACKOFF) -> None:
        self._known = known
        self.longest = longest              # seconds; 0: no back-off

    def wait(self, client: bytes, name: bytes, exists: bool, now: float) -> float:
        """Returns the seconds until this client's next try at this name is allowed."""
        if not self.longest or is_exempt(client):
            return 0.0
        table = GUESSES if exists else STRANGERS
        count, last_us = self._known.read_mark(table, guess_key(client, name))
        return max(0.0, last_us / 1e6 + backoff_of(count, self.longest) - now)

    def refusal_delay(self, client: bytes, now: float) -> float:
        """Returns the seconds by which a refusal is delayed: 0, or 1, 2, 4."""
        over = self._failures(client, now) - FREE_FAILURES_OF_ADDRESS
        if over < 0 or not self.longest or is_exempt(client):
            return 0.0
        return min(self.longest, LONGEST_HOLD, 2.0 ** min(over, 10))

    def is_known_wrong(self, client: bytes, key: bytes, now: float,
                       within: float = FORGET_AFTER) -> bool:
        """Has this client failed within these seconds with the same credentials and
        record? Then the repeat is no new guess, and needs no hash."""
        count, last_us = self._known.read_mark(STRANGERS, b"w" + client + key)
        return count > 0 and now <= last_us / 1e6 + within

    def fail(self, client: bytes, name: bytes, exists: bool, key: bytes,
             now: float) -> None:
        """Counts wrong credentials."""
        now_us = int(now * 1e6)
        self._known.mark(STRANGERS, b"w" + client + key, now_us, self._forget_us)
        if not is_exempt(client):
            table = GUESSES if exists else STRANGERS
            self._known.mark(table, guess_key(client, name), now_us, self._forget_us)
            self.count_refusal(client, now)

    def count_refusal(self, client: bytes, now: float) -> None:
        """Counts one more refusal of this client, independent of the name."""
        self._known.mark(PLACES, b"a" + client, int(now * 1e6), self._forget_us)

    def succeed(self, client: bytes, name: bytes) -> None:
        """Resets the failures of this name only. If a success reset all names, anyone
        with one account could guess the others without end."""
        self._known.unmark(GUESSES, guess_key(client, name))

    @property
    def _forget_us(self) -> int:
        return int(max(FORGET_AFTER, FORGET_WAITS * self.longest) * 1e6)

    def _failures(self, client: bytes, now: float) -> int:
        count, last_us = self._known.read_mark(PLACES, b"a" + client)
        return count if now * 1e6 <= last_us + self._forget_us else 0


def guess_key(client: bytes, name: bytes) -> bytes:
    return bytes((len(client),)) + client + name


def backoff_of(failures: int, longest: float = LONGEST_BACKOFF) -> float:
    """Returns the wait after this many failures in a row: 0 at first, then 1, 2, 4 …"""
    if failures < FREE_FAILURES:
        return 0.0
    return min(longest, 2.0 ** min(failures - FREE_FAILURES, 30))


class Rank(IntEnum):
    """History of a network; a lower rank goes first."""

    KNOWN = 0           # at least one login succeeded
    NEW = 1
    SUSPECT = 2         # the last FREE_FAILURES tries or more all failed


def network_of(client: bytes) -> bytes:
    """Returns an IPv4 address's /24, or an IPv6 /64's /48, a site's (RFC 6177)."""
    return client[:3] if len(client) == 4 else client[:6]


class NetworkHistory:
    """Records which networks have logged in before, and which have only failed."""

    def __init__(self, known: Known) -> None:
        self._known = known

    def rank(self, client: bytes, now: float) -> Rank:
        network = network_of(client)
        wrong, last_us = self._known.read_mark(PLACES, b"n" + network)
        if wrong >= FREE_FAILURES and now <= last_us / 1e6 + FORGET_AFTER:
            return Rank.SUSPECT
        # In its own table, so that guessers cannot evict the networks of users
        right, _ = self._known.read_mark(RIGHT, network)
        return Rank.KNOWN if right else Rank.NEW

    def fail(self, client: bytes, now: float) -> None:
        self._known.mark(PLACES, b"n" + network_of(client), int(now * 1e6),
                         int(FORGET_AFTER * 1e6))

    def succeed(self, client: bytes, now: float) -> None:
        network = network_of(client)
        self._known.unmark(PLACES, b"n" + network)
        self._known.mark(RIGHT, network, int(now * 1e6), 1 << 62)
