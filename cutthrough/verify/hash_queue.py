"""Credentials that wait for a hash: who is next, and who gives way.

Ranks first (verify.backoff). Within a rank three of four turns are the newest's, whose
client is the most likely to be there still, and one is the oldest's, so that everybody
has a turn however many come after. Behind all ranks stand those whose requests have
all ended meanwhile: their hash is worth something if the client comes back.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cutthrough.policy.auth import Account, Authenticator
from cutthrough.verify.backoff import Rank

Answer = Account | str      # the account, or the label of an outcome
# With the seconds after which another try is looked at; 0: nothing is said about that
Callback = Callable[[Answer, int], None]

# Every so many turns it is the oldest's
OLDEST_TURN = 4


class Waiter(NamedTuple):
    """One request that waits for a verdict."""

    client: bytes
    authenticator: Authenticator            # of the generation that it began with
    callback: Callback
    since: float


class Flight:
    """One credential under verification, and who waits for it."""

    __slots__ = ("account", "asked_at", "authenticator", "began_at", "key", "name",
                 "trusted", "value", "waiters")

    def __init__(self, authenticator: Authenticator, value: bytes, key: bytes,
                 name: bytes, trusted: bool) -> None:
        self.authenticator = authenticator
        self.value = value
        self.key = key
        self.name = name
        self.trusted = trusted              # nobody's guess: it was right before
        self.waiters: deque[Waiter] = deque()
        self.asked_at = 0.0                 # by the last one
        self.began_at = 0.0                 # its hash
        self.account: Account | None = None     # whose they are, if the hash says so


class HashQueue:
    """Flights by rank; each is in it once. `patience`: how long a request waits."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        # By when they came, and by when they were asked for last
        self._came: dict[Rank, dict[Flight, None]] = {rank: {} for rank in Rank}
        self._asked: dict[Rank, OrderedDict[Flight, None]] = {
            rank: OrderedDict() for rank in Rank}
        self._ranks: dict[Flight, Rank] = {}
        self._left: dict[Flight, None] = {}     # nobody waits for these
        self._turn = 0

    def put(self, flight: Flight, rank: Rank) -> None:
        self._ranks[flight] = rank
        self._came[rank][flight] = None
        self._asked[rank][flight] = None

    def ask_again(self, flight: Flight, rank: Rank) -> None:
        """Somebody asks for a flight that may wait here."""
        if flight in self._left:
            del self._left[flight]
            self.put(flight, rank)
        elif (known := self._ranks.get(flight)) is not None:
            self._asked[known].move_to_end(flight)

    def remove(self, flight: Flight) -> None:
        self._left.pop(flight, None)
        rank = self._ranks.pop(flight, None)
        if rank is not None:
            del self._came[rank][flight]
            del self._asked[rank][flight]

    def take(self, rank_of: Callable[[Flight], Rank], now: float) -> Flight | None:
        """The next, or None; looks again at what has sunk since it came."""
        for rank in Rank:
            while (flight := self._pick(rank, now)) is not None:
                self.remove(flight)
                if (sunk := rank_of(flight)) <= rank:
                    return flight
                self.put(flight, sunk)
        flight = next(iter(self._left), None)
        if flight is not None:
            self.remove(flight)
        return flight

    def _pick(self, rank: Rank, now: float) -> Flight | None:
        if not self._asked[rank]:
            return None
        newest = next(reversed(self._asked[rank]))
        if self._is_left(newest, now):      # then all are: it was asked for last
            for flight in [*self._came[rank]]:
                self._leave(flight)
            return None
        self._turn = (self._turn + 1) % OLDEST_TURN
        if self._turn:
            return newest
        while self._is_left(oldest := next(iter(self._came[rank])), now):
            self._leave(oldest)
        return oldest

    def _is_left(self, flight: Flight, now: float) -> bool:
        return flight.asked_at + self.patience < now

    def _leave(self, flight: Flight) -> None:
        self.remove(flight)
        self._left[flight] = None

    def evict(self, rank: Rank, now: float) -> Flight | None:
        """Who gives way to one of this rank: nobody's, else the oldest of the last rank
        behind it; or None."""
        for worse in reversed(Rank):
            asked = self._asked[worse]
            while asked and self._is_left(oldest := next(iter(asked)), now):
                self._leave(oldest)
        flight = next(iter(self._left), None)
        for worse in reversed(Rank):
            if flight is None and worse > rank:
                flight = next(iter(self._asked[worse]), None)
        if flight is not None:
            self.remove(flight)
        return flight

    def __iter__(self) -> Iterator[Flight]:
        yield from self._ranks
        yield from self._left

    def __len__(self) -> int:
        return len(self._ranks) + len(self._left)

    def clear(self) -> None:
        for flight in [*self]:
            self.remove(flight)
