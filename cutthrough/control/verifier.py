"""Password hashes, computed beside the loop: bounded, one for each credential (R24).

    verify ─ one under way? ─> wait with it ──────────────────────┐
         ├─> lobby ─> hashers (control.hashers) ─> settle ─> every callback of it
         └─> at once: auth_throttled (too many wrong), overloaded (no place), and
             whether it is the configuration's own password, which is no hash

Everything here runs in the loop. Where more is asked for than can be computed, those
go first whose network was right before, those last whose network is only ever wrong,
and of equals the newest: the oldest has waited so long that nobody may be there still.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

from cutthrough.control.backoff import Backoff, Rank, Standing
from cutthrough.control.hashers import LOST, Hashers
from cutthrough.policy.auth import Account, Authenticator

log = logging.getLogger("cutthrough")

Answer = Account | str      # the account, or the label of an outcome
Callback = Callable[[Answer], None]

FAILED = "auth_failed"
EXPIRED = "auth_expired"
THROTTLED = "auth_throttled"
OVERLOADED = "overloaded"

LONGEST_NAME = 64       # of a name that guesses are counted for; the table is bounded


def guess_of(client: bytes, name: bytes | None) -> bytes:
    """What stands for a client's guesses at one name, however long that is."""
    return client + (name or b"")[:LONGEST_NAME]


class Flight:
    """One credential under verification, and who waits for it."""

    def __init__(self, authenticator: Authenticator, value: bytes, tag: bytes) -> None:
        self.authenticator = authenticator
        self.value = value
        self.tag = tag
        self.name = authenticator.name_of(value)
        self.callbacks: list[tuple[bytes, Callback]] = []
        self.account: Account | None = None     # whose they are, if the hash says so


class Lobby:
    """Who waits for a hash, by rank; of equals the newest is the first."""

    def __init__(self) -> None:
        self._waiting: dict[Rank, deque[Flight]] = {rank: deque() for rank in Rank}

    def put(self, flight: Flight, rank: Rank) -> None:
        self._waiting[rank].append(flight)

    def take(self, rank_of: Callable[[Flight], Rank]) -> Flight | None:
        """The next, or None; looks again at what has sunk since it came."""
        for rank, waiting in self._waiting.items():
            while waiting:
                flight = waiting.pop()
                if rank_of(flight) <= rank:
                    return flight
                self.put(flight, rank_of(flight))
        return None

    def evict(self, rank: Rank) -> Flight | None:
        """The oldest of the last rank behind `rank`, or None."""
        for worse in reversed(Rank):
            if worse > rank and self._waiting[worse]:
                return self._waiting[worse].popleft()
        return None

    def clear(self) -> None:
        for waiting in self._waiting.values():
            waiting.clear()


class Verifier:
    """Verifies credentials for one worker, whose `hashers` are closed with it.

    `most_waiting` bounds how many credentials wait or are worked on, and how many
    requests wait for them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, hashers: Hashers,
                 most_waiting: int = 128) -> None:
        self._loop = loop
        self._hashers = hashers
        self._most_waiting = most_waiting
        self._flights: dict[bytes, Flight] = {}
        self._lobby = Lobby()
        self._callbacks = 0
        self._running = 0
        self._closed = False
        self.backoff = Backoff()
        # Of an address and a name. Who is right for his own is forgiven, but not what
        # he tried for others: else an account is all it takes to guess without an end.
        self.guesses = Backoff()
        self.standing = Standing()
        self.verified = 0
        self.failed = 0
        self.throttled = 0
        self.overloaded = 0
        self.shared = 0                 # asked for while the same was under way

    def verify(self, authenticator: Authenticator, value: bytes, client: bytes,
               callback: Callback) -> None:
        """Calls `callback(answer)` once: at once where no hash is needed, else later.

        `client` stands for the client's address. What waits when `close` is called is
        never answered.
        """
        now = self._loop.time()
        if self._is_closed(client, authenticator.name_of(value), now):
            self.throttled += 1
            callback(THROTTLED)
            return
        account = authenticator.compare(value)
        if account is not None or not authenticator.has_table:
            callback(self._judge(authenticator, value, account, {client}))
            return
        tag = authenticator.tag(value)
        flight = self._flights.get(tag)
        rank = self.standing.rank(client, now)
        if self._closed or not self._has_room(flight is None, rank):
            self.overloaded += 1
            callback(OVERLOADED)
            return
        self._callbacks += 1
        if flight is not None:
            self.shared += 1
            flight.callbacks.append((client, callback))
            return
        flight = self._flights[tag] = Flight(authenticator, value, tag)
        flight.callbacks.append((client, callback))
        self._lobby.put(flight, rank)
        self._dispatch()

    def _is_closed(self, client: bytes, name: bytes | None, now: float) -> bool:
        return (self.backoff.is_closed(client, now)
                or self.guesses.is_closed(guess_of(client, name), now))

    def _has_room(self, new: bool, rank: Rank) -> bool:
        # More requests of one credential cost no hash: a browser opens dozens
        if self._callbacks >= 16 * self._most_waiting:
            return False
        if not new or len(self._flights) < self._most_waiting:
            return True
        other = self._lobby.evict(rank)
        if other is None:
            return False
        self.overloaded += len(other.callbacks)
        self._answer(other, OVERLOADED)
        return True

    def _rank_of(self, flight: Flight) -> Rank:
        return self.standing.rank(flight.callbacks[0][0], self._loop.time())

    def _dispatch(self) -> None:
        while self._running < self._hashers.most:
            flight = self._lobby.take(self._rank_of)
            if flight is None:
                return
            now = self._loop.time()
            # Wrong ones that were let in before the first of them was known to be wrong
            if all(self._is_closed(one, flight.name, now)
                   for one, _ in flight.callbacks):
                self.throttled += len(flight.callbacks)
                self._answer(flight, THROTTLED)
                continue
            hash, secret, flight.account = flight.authenticator.question(flight.value)
            self._running += 1
            self._hashers.compute(hash, secret, partial(self._settle, flight))

    def _settle(self, flight: Flight, matches: bool | None, fault: str) -> None:
        self._running -= 1
        if self._closed:
            return
        if fault == LOST:
            self.overloaded += len(flight.callbacks)
            self._answer(flight, OVERLOADED)
        else:
            if fault:
                log.error("a password hash could not be computed: %s", fault)
            self._answer(flight, self._judge(
                flight.authenticator, flight.value, flight.account if matches else None,
                {client for client, _ in flight.callbacks}))
        self._dispatch()

    def _judge(self, authenticator: Authenticator, value: bytes,
               account: Account | None, clients: set[bytes]) -> Answer:
        """What is answered, and held against those who asked or forgiven them."""
        name = authenticator.name_of(value)
        if account is None:
            self.failed += 1
            now = self._loop.time()
            for client in clients:
                self.backoff.fail(client, now)
                self.guesses.fail(guess_of(client, name), now)
                self.standing.fail(client, now)
            return FAILED
        self.verified += 1
        for client in clients:
            self.backoff.succeed(client)
            self.guesses.succeed(guess_of(client, name))
            self.standing.succeed(client)
        return account if authenticator.remember(value, account) else EXPIRED

    def _answer(self, flight: Flight, answer: Answer) -> None:
        del self._flights[flight.tag]
        self._callbacks -= len(flight.callbacks)
        for _, callback in flight.callbacks:
            callback(answer)

    def __len__(self) -> int:
        """How many requests wait for an answer."""
        return self._callbacks

    def close(self) -> None:
        """Ends: nobody is called any more."""
        self._closed = True
        self._lobby.clear()
        self._flights.clear()
        self._callbacks = 0
        self._hashers.close()
