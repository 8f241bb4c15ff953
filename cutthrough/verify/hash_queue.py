"""The queue of credentials that wait for a hash: which is next, and which is evicted.

The rank (verify.backoff) decides first. Within a rank three of four turns go to the
newest, because its client is the most likely to be still connected, and one goes to the
oldest, so that newcomers cannot starve it. Credentials whose requests have all ended
come after all ranks: their hash is useful only if the client comes back.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from cutthrough.policy.auth import Account, Authenticator
from cutthrough.verify.backoff import Rank

Answer = Account | str      # the account, or the label of an outcome
# The second argument is Retry-After in seconds; 0: none is sent
Callback = Callable[[Answer, int], None]

# One turn in this many goes to the oldest
OLDEST_TURN = 4


class Waiter(NamedTuple):
    """One request that waits for a verdict."""

    client: bytes
    authenticator: Authenticator            # of the generation at the request's start
    callback: Callback
    since: float


class Flight:
    """One credential under verification, and the requests that wait for it."""

    __slots__ = ("account", "authenticator", "began_at", "key", "last_asked_at", "name",
                 "trusted", "value", "waiters")

    def __init__(self, authenticator: Authenticator, value: bytes, key: bytes,
                 name: bytes, trusted: bool) -> None:
        self.authenticator = authenticator
        self.value = value
        self.key = key
        self.name = name
        self.trusted = trusted              # verified before, so this is no guess
        self.waiters: deque[Waiter] = deque()
        self.last_asked_at = 0.0                 # when the last waiter came
        self.began_at = 0.0                 # when its hash began
        self.account: Account | None = None     # the result if the hash matches


class HashQueue:
    """Flights by rank, each at most once. `patience`: seconds that a request waits."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        # In order of arrival, and in order of the last request
        self._by_arrival: dict[Rank, dict[Flight, None]] = {rank: {} for rank in Rank}
        self._by_request: dict[Rank, OrderedDict[Flight, None]] = {
            rank: OrderedDict() for rank in Rank}
        self._ranks: dict[Flight, Rank] = {}
        self._abandoned: dict[Flight, None] = {}     # flights without a waiting request
        self._turn = 0

    def put(self, flight: Flight, rank: Rank) -> None:
        self._ranks[flight] = rank
        self._by_arrival[rank][flight] = None
        self._by_request[rank][flight] = None

    def touch(self, flight: Flight, rank: Rank) -> None:
        """Notes another request for this flight, if the flight is in the queue."""
        if flight in self._abandoned:
            del self._abandoned[flight]
            self.put(flight, rank)
        elif (known := self._ranks.get(flight)) is not None:
            self._by_request[known].move_to_end(flight)

    def remove(self, flight: Flight) -> None:
        self._abandoned.pop(flight, None)
        rank = self._ranks.pop(flight, None)
        if rank is not None:
            del self._by_arrival[rank][flight]
            del self._by_request[rank][flight]

    def take(self, rank_of: Callable[[Flight], Rank], now: float) -> Flight | None:
        """Returns the next flight, or None. A flight whose rank has become worse since
        it was queued is moved to its new rank."""
        for rank in Rank:
            while (flight := self._pick(rank, now)) is not None:
                self.remove(flight)
                if (sunk := rank_of(flight)) <= rank:
                    return flight
                self.put(flight, sunk)
        flight = next(iter(self._abandoned), None)
        if flight is not None:
            self.remove(flight)
        return flight

    def _pick(self, rank: Rank, now: float) -> Flight | None:
        if not self._by_request[rank]:
            return None
        newest = next(reversed(self._by_request[rank]))
        if self._is_abandoned(newest, now):     # then all are: this was the last
            for flight in [*self._by_arrival[rank]]:
                self._abandon(flight)
            return None
        self._turn = (self._turn + 1) % OLDEST_TURN
        if self._turn:
            return newest
        while self._is_abandoned(oldest := next(iter(self._by_arrival[rank])), now):
            self._abandon(oldest)
        return oldest

    def _is_abandoned(self, flight: Flight, now: float) -> bool:
        return flight.last_asked_at + self.patience < now

    def _abandon(self, flight: Flight) -> None:
        self.remove(flight)
        self._abandoned[flight] = None

    def evict(self, rank: Rank, now: float) -> Flight | None:
        """Removes and returns a flight to make room for one of `rank`: one without a
        waiting request, else the oldest of the worst rank below `rank`; or None."""
        for worse in reversed(Rank):
            flights = self._by_request[worse]
            while flights and self._is_abandoned(oldest := next(iter(flights)), now):
                self._abandon(oldest)
        flight = next(iter(self._abandoned), None)
        for worse in reversed(Rank):
            if flight is None and worse > rank:
                flight = next(iter(self._by_request[worse]), None)
        if flight is not None:
            self.remove(flight)
        return flight

    def __iter__(self) -> Iterator[Flight]:
        yield from self._ranks
        yield from self._abandoned

    def __len__(self) -> int:
        return len(self._ranks) + len(self._abandoned)

    def clear(self) -> None:
        for flight in [*self]:
            self.remove(flight)
