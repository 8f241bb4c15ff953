"""Who was wrong how often: how long a try waits, and whose turn comes first.

A guess is a try at one name from one address. After five wrong ones in a row the next
waits, 1, 2, 4 … seconds: the names of other people at the same address do not. That
holds for a name that nobody has as well, so the wait says nothing about the name (R22).
An address that was wrong more often, whatever the names were, gets its refusals late.

A guesser with many addresses has many budgets, and fills the queue for hashes: so each
request in the queue has a rank by what came from its network before. The rank refuses
nobody; it says who is last when more is asked for than can be computed.

Everything here stands on the page that all workers share (`policy.known`): an address
has one budget and not one for each worker, and a worker that follows goes on with it.
"""

from enum import IntEnum

from cutthrough.policy.known import GUESSES, PLACES, RIGHT, STRANGERS, Known

# Wrong tries in a row at one name from one address until the next one waits
FREE_FAILURES = 5
# Wrong tries in a row from one address, of any names, until its refusals come late: a
# site behind one address mistypes as well
FREE_OF_ADDRESS = 20
# `auth_backoff`, unless configured
LONGEST_BACKOFF = 60.0
# After so long without another one they are forgotten; or after ten times the longest
# wait, else waiting would be better for a guesser than to go on
FORGET_AFTER = 600.0
FORGET_WAITS = 10
# A try or a refusal is held for so long at most, and then refused: browsers ask their
# user again on 407 only. Less than half of auth_timeout, which a hash needs as well
LONGEST_HOLD = 4.0


def is_exempt(client: bytes) -> bool:
    """A client on this host, by loopback or by a Unix socket: it has no address that
    could be kept from trying, only neighbours that would be kept from it too."""
    return client[:1] == b"\x7f" if len(client) == 4 else not any(client)


class Backoff:
    """How often each client was wrong, and how long it waits.

    A client is the bytes of an IPv4 address, or of the /64 of an IPv6 one.
    """

    def __init__(self, known: Known, longest: float = LONGEST_BACKOFF) -> None:
        self._known = known
        self.longest = longest              # 0: nobody waits

    def wait(self, client: bytes, name: bytes, exists: bool, now: float) -> float:
        """Seconds until this client's next try at this name is looked at."""
        if not self.longest or is_exempt(client):
            return 0.0
        table = GUESSES if exists else STRANGERS
        count, last_us = self._known.read_mark(table, guess_of(client, name))
        return max(0.0, last_us / 1e6 + backoff_of(count, self.longest) - now)

    def hold(self, client: bytes, now: float) -> float:
        """Seconds by which a refusal of this client is delayed: 0, or 1, 2, 4."""
        over = self._failures(client, now) - FREE_OF_ADDRESS
        if over < 0 or not self.longest or is_exempt(client):
            return 0.0
        return min(self.longest, LONGEST_HOLD, 2.0 ** min(over, 10))

    def is_known_wrong(self, client: bytes, key: bytes, now: float) -> bool:
        """Has this client tried the same credentials against the same record before?
        To repeat them is no guess, and costs no hash."""
        count, last_us = self._known.read_mark(STRANGERS, b"w" + client + key)
        return count > 0 and now <= last_us / 1e6 + FORGET_AFTER

    def fail(self, client: bytes, name: bytes, exists: bool, key: bytes,
             now: float) -> None:
        """These credentials were wrong."""
        now_us = int(now * 1e6)
        self._known.mark(STRANGERS, b"w" + client + key, now_us, self._forget_us)
        if not is_exempt(client):
            table = GUESSES if exists else STRANGERS
            self._known.mark(table, guess_of(client, name), now_us, self._forget_us)
            self.repeat(client, now)

    def repeat(self, client: bytes, now: float) -> None:
        """One more refusal of this client, whatever the name was."""
        self._known.mark(PLACES, b"a" + client, int(now * 1e6), self._forget_us)

    def succeed(self, client: bytes, name: bytes) -> None:
        """Forgives what was wrong of this name, and of no other: else an account is all
        it takes to guess without an end."""
        self._known.unmark(GUESSES, guess_of(client, name))

    @property
    def _forget_us(self) -> int:
        return int(max(FORGET_AFTER, FORGET_WAITS * self.longest) * 1e6)

    def _failures(self, client: bytes, now: float) -> int:
        count, last_us = self._known.read_mark(PLACES, b"a" + client)
        return count if now * 1e6 <= last_us + self._forget_us else 0


def guess_of(client: bytes, name: bytes) -> bytes:
    return bytes((len(client),)) + client + name


def backoff_of(failures: int, longest: float = LONGEST_BACKOFF) -> float:
    """Seconds after the n-th wrong one in a row: 0 to begin with, then 1, 2, 4 …"""
    if failures < FREE_FAILURES:
        return 0.0
    return min(longest, 2.0 ** min(failures - FREE_FAILURES, 30))


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

    def __init__(self, known: Known) -> None:
        self._known = known

    def rank(self, client: bytes, now: float) -> Rank:
        network = network_of(client)
        wrong, last_us = self._known.read_mark(PLACES, b"n" + network)
        if wrong >= FREE_FAILURES and now <= last_us / 1e6 + FORGET_AFTER:
            return Rank.SUSPECT
        # In a table of its own, so that no number of guessers pushes these out
        right, _ = self._known.read_mark(RIGHT, network)
        return Rank.KNOWN if right else Rank.NEW

    def fail(self, client: bytes, now: float) -> None:
        self._known.mark(PLACES, b"n" + network_of(client), int(now * 1e6),
                         int(FORGET_AFTER * 1e6))

    def succeed(self, client: bytes, now: float) -> None:
        network = network_of(client)
        self._known.unmark(PLACES, b"n" + network)
        self._known.mark(RIGHT, network, int(now * 1e6), 1 << 62)
