"""Password hashes, computed beside the loop: bounded, one for each credential (R24).

    verify ─ one under way? ─> wait with it ─────────────────────────────┐
         ├─> wrong too often ─> tarpit ─┐ or auth_throttled              │
         ├─> lobby <────────────────────┘ or overloaded                  │
         │     └─> another worker's? ─> pool (verify.hash_pool) ─> settle
         └─> the configuration's own password, which is no hash ─────────┘
                                   right: at once; wrong: perhaps late (tarpit)

All code here runs in the loop. If requests come faster than hashes, networks with an
earlier success go first, and networks that have only failed go last
(verify.hash_queue). The result of a hash that was begun is kept even if its requests
have ended meanwhile.

Credentials that were right within the last day, for a record that has not changed
since, are no guess: no back-off delays them, even if others at their address fail.
"""

import asyncio
import logging
import math
import random
import time
from collections import deque
from collections.abc import Callable
from functools import partial

from cutthrough.policy.auth import Account, Authenticator
from cutthrough.policy.known import Known
from cutthrough.verify.backoff import (
    FORGET_AFTER,
    LONGEST_HOLD,
    Backoff,
    NetworkHistory,
    Rank,
)
from cutthrough.verify.call_pool import MOST_CALLS, CallPool
from cutthrough.verify.hash_pool import LOST, HashPool
from cutthrough.verify.hash_queue import Answer, Callback, Flight, HashQueue, Waiter
from cutthrough.verify.tarpit import Tarpit

log = logging.getLogger("cutthrough")

FAILED = "auth_failed"
EXPIRED = "auth_expired"
THROTTLED = "auth_throttled"
OVERLOADED = "overloaded"
UNAVAILABLE = "policy_unavailable"

# Interval of the check whether another worker has verified credentials that wait here
CHECK_S = 0.05
# A deadline fires at the end of a timer tick, and later if the loop is busy
TIMER_LAG_S = 1.0
# How long the same credentials are not verified again that a function has called wrong:
# its users may change at any time
REPEAT_S = 10.0


class Verifier:
    """Verifies credentials for one worker; `close` closes `pool` too.

    `most_waiting` bounds the credentials that wait or are being verified, and the
    requests that wait for them. `known` is the page shared by all workers; `clock`
    reads CLOCK_MONOTONIC; `observe` gets each request's wait in microseconds.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, pool: HashPool,
                 most_waiting: int = 2048, known: Known | None = None, *,
                 clock: Callable[[], float] = time.monotonic,
                 observe: Callable[[int], None] | None = None) -> None:
        self._loop = loop
        self._pool = pool
        self._calls = CallPool(loop)
        self._most_waiting = most_waiting
        self._known = Known() if known is None else known
        self._clock = clock
        self._observe = observe
        self._flights: dict[bytes, Flight] = {}
        self._elsewhere: set[Flight] = set()    # being hashed by another worker
        self._queue = HashQueue(10.0)
        self._tarpit = Tarpit(loop)
        self._held: set[tuple[bytes, bytes]] = set()    # client, name of a delayed try
        self._callbacks = 0
        self._running = 0               # hashes, and calls of functions
        self._hashing = 0
        self._closed = False
        self._check: asyncio.TimerHandle | None = None
        self._proved = 0                # proofs of all workers at the last check
        self._durations: deque[float] = deque(maxlen=16)        # of hashes
        self.backoff = Backoff(self._known)
        self.networks = NetworkHistory(self._known)
        self.hashes = 0
        self.verified = 0
        self.failed = 0
        self.throttled = 0
        self.overloaded = 0
        self.shared = 0                 # requests that joined a flight

    def configure(self, longest_backoff: float, auth_timeout: float) -> None:
        """Sets the values that a reload may change."""
        self.backoff.longest = longest_backoff
        self._queue.patience = self._calls.patience = auth_timeout + TIMER_LAG_S

    def verify(self, authenticator: Authenticator, value: bytes, client: bytes,
               callback: Callback) -> None:
        """Calls `callback(answer, retry_s)` once: immediately if no hash and no delay
        is needed, else later.

        `client` identifies the client's address. Requests that still wait when `close`
        is called get no answer.
        """
        key = authenticator.key_of(value)
        name = authenticator.name_of(value)
        if key is None or name is None:
            callback(FAILED, 0)
            return
        now = self._clock()
        waiter = Waiter(client, authenticator, callback, now)
        flight = self._flights.get(key)
        if flight is not None:
            self._join(flight, waiter, now)
            return
        trusted = authenticator.proved_us(key) > 0
        if not trusted:
            if self._is_known_wrong(authenticator, client, key, now):
                self.failed += 1
                self.backoff.count_refusal(client, now)
                self._refuse(waiter, now)
                return
            if self._wait_of(waiter, name, now) > 0:
                self._delay_try(waiter, value, name, now)
                return
        self._admit(waiter, value, key, name, trusted, now)

    def _is_known_wrong(self, authenticator: Authenticator, client: bytes, key: bytes,
                        now: float) -> bool:
        within = FORGET_AFTER if authenticator.function is None else REPEAT_S
        return self.backoff.is_known_wrong(client, key, now, within)

    def _wait_of(self, waiter: Waiter, name: bytes, now: float) -> float:
        exists = waiter.authenticator.find(name) is not None
        return self.backoff.wait(waiter.client, name, exists, now)

    # Tries that wait, and refusals

    def _delay_try(self, waiter: Waiter, value: bytes, name: bytes, now: float) -> None:
        """Delays a try while its client is in back-off, at most one for each name and
        LONGEST_HOLD; otherwise answers THROTTLED."""
        wait = self._wait_of(waiter, name, now)
        guess = (waiter.client, name)
        if wait <= LONGEST_HOLD and guess not in self._held and self._tarpit.hold(
                waiter.client, wait, partial(self._retry, waiter, value, name)):
            self._held.add(guess)
        else:
            self.throttled += 1
            self._answer(waiter, THROTTLED, now, wait)

    def _retry(self, waiter: Waiter, value: bytes, name: bytes) -> None:
        self._held.discard((waiter.client, name))
        now = self._clock()
        key = waiter.authenticator.key_of(value)
        assert key is not None
        if self._wait_of(waiter, name, now) > 0:    # another try failed meanwhile
            self._delay_try(waiter, value, name, now)
        elif (flight := self._flights.get(key)) is not None:
            self._join(flight, waiter, now)
        else:
            self._admit(waiter, value, key, name, False, now)

    def _refuse(self, waiter: Waiter, now: float) -> None:
        """Answers FAILED, with a delay if the address has failed often."""
        seconds = self.backoff.refusal_delay(waiter.client, now)
        if not seconds:
            self._answer(waiter, FAILED, now)
        elif not self._tarpit.hold(waiter.client, seconds, partial(
                self._answer, waiter, FAILED, now)):
            self.throttled += 1
            self._answer(waiter, THROTTLED, now, seconds)

    def _answer(self, waiter: Waiter, answer: Answer, now: float,
                retry: float = 0.0) -> None:
        if self._observe is not None:
            self._observe(int((now - waiter.since) * 1e6))
        waiter.callback(answer, math.ceil(retry))

    # Into the queue

    def _admit(self, waiter: Waiter, value: bytes, key: bytes, name: bytes,
               trusted: bool, now: float) -> None:
        authenticator = waiter.authenticator
        account = authenticator.compare(value)
        if account is not None or not authenticator.has_table:
            self._record_verdict(key, name, trusted, account, authenticator, [waiter])
            return
        rank = Rank.KNOWN if trusted else self.networks.rank(waiter.client, now)
        if self._closed or not self._has_room(True, rank, now):
            self.overloaded += 1
            self._answer(waiter, OVERLOADED, now)
            return
        flight = self._flights[key] = Flight(authenticator, value, key, name, trusted)
        self._add(flight, waiter, now)
        self._queue.put(flight, rank)
        self._dispatch()
        self._schedule_check()

    def _join(self, flight: Flight, waiter: Waiter, now: float) -> None:
        rank = self._rank_of(flight)
        if not self._has_room(False, rank, now):
            self.overloaded += 1
            self._answer(waiter, OVERLOADED, now)
            return
        self.shared += 1
        while flight.waiters and flight.waiters[0].since + self._queue.patience < now:
            self._callbacks -= 1            # its request has ended by auth_timeout
            self._answer(flight.waiters.popleft(), OVERLOADED, now)
        self._add(flight, waiter, now)
        self._queue.touch(flight, rank)

    def _add(self, flight: Flight, waiter: Waiter, now: float) -> None:
        self._callbacks += 1
        flight.waiters.append(waiter)
        flight.last_asked_at = now

    def _has_room(self, new: bool, rank: Rank, now: float) -> bool:
        # Further requests with one credential need no hash; a browser opens dozens
        if self._callbacks >= 16 * self._most_waiting:
            return False
        if not new or len(self._flights) < self._most_waiting:
            return True
        other = self._queue.evict(rank, now)
        if other is None:
            return False
        self.overloaded += len(other.waiters)
        self._answer_all(other, OVERLOADED)
        return True

    def _rank_of(self, flight: Flight) -> Rank:
        if flight.trusted:
            return Rank.KNOWN
        return self.networks.rank(flight.waiters[-1].client, self._clock())

    # Out of the queue

    def _dispatch(self) -> None:
        while self._running < MOST_CALLS and self._hashing < self._pool.most:
            now = self._clock()
            flight = self._queue.take(self._rank_of, now)
            if flight is None:
                return
            self._start_hash(flight, now)

    def _start_hash(self, flight: Flight, now: float) -> None:
        account = flight.authenticator.recall(flight.value)
        if account is not None:             # another worker has verified it
            self._finish(flight, account)
            return
        waiters = flight.waiters
        if any(self._is_known_wrong(flight.authenticator, waiter.client, flight.key,
                                    now) for waiter in waiters):
            self._finish(flight, None)
            return
        # Guesses that were queued before the first of them turned out to be wrong
        if not flight.trusted and all(
                self._wait_of(waiter, flight.name, now) > 0 for waiter in waiters):
            for waiter in self._remove(flight):
                self._delay_try(waiter, flight.value, flight.name, now)
            return
        if self._needs_no_hash(flight, now):
            # Takes its turn, and as long as a hash, so that the time does not reveal
            # that the name is unknown; but no hash is computed
            self._loop.call_later(random.choice(self._durations),
                                  self._finish, flight, None)
            return
        if not self._known.claim(flight.key, int(now * 1e6)):
            self._elsewhere.add(flight)
            return
        hash, secret, flight.account = flight.authenticator.hash_to_verify(flight.value)
        self._running += 1
        flight.began_at = now
        function = flight.authenticator.function
        if function is not None:
            self._calls.call(function, hash, secret, partial(self._on_call, flight))
            return
        self._hashing += 1
        self._pool.compute(hash, secret, partial(self._on_hash, flight))

    def _needs_no_hash(self, flight: Flight, now: float) -> bool:
        """Is this an unknown name, tried from addresses that have failed often?"""
        return (flight.authenticator.find(flight.name) is None
                and len(self._durations) > 0
                and all(self.backoff.refusal_delay(waiter.client, now)
                        for waiter in flight.waiters))

    def _on_call(self, flight: Flight, is_right: bool | None) -> None:
        self._running -= 1
        if self._closed:
            return
        if is_right is None:
            self._answer_all(flight, UNAVAILABLE)
        else:
            self._finish(flight, flight.account if is_right else None)
        self._known.disclaim(flight.key)        # only after the proof is published
        self._dispatch()

    def _on_hash(self, flight: Flight, matches: bool | None, fault: str) -> None:
        self._running -= 1
        self._hashing -= 1
        if self._closed:
            return
        if fault == LOST:
            self._known.disclaim(flight.key)
            self.overloaded += len(flight.waiters)
            self._answer_all(flight, OVERLOADED)
        else:
            if fault:
                log.error("a password hash could not be computed: %s", fault)
            self.hashes += 1
            self._durations.append(self._clock() - flight.began_at)
            self._finish(flight, flight.account if matches else None)
            self._known.disclaim(flight.key)    # only after the proof is published
        self._dispatch()

    def _finish(self, flight: Flight, account: Account | None) -> None:
        if not self._closed:
            self._record_verdict(flight.key, flight.name, flight.trusted, account,
                                 flight.authenticator, self._remove(flight))

    def _record_verdict(
            self, key: bytes, name: bytes, trusted: bool, account: Account | None,
            authenticator: Authenticator, waiters: list[Waiter]) -> None:
        """Counts the result for or against each client, and answers the requests."""
        now = self._clock()
        clients = {waiter.client for waiter in waiters}
        if account is None:
            self.failed += 1
            exists = authenticator.find(name) is not None
            for client in clients:
                if self._is_known_wrong(authenticator, client, key, now):
                    # Another worker has counted these credentials
                    self.backoff.count_refusal(client, now)
                else:
                    self.backoff.fail(client, name, exists, key, now)
                    self.networks.fail(client, now)
            for waiter in waiters:
                self._refuse(waiter, now)
            return
        self.verified += 1
        for client in clients:
            if not trusted:         # a repeat must not forgive guesses at its address
                self.backoff.succeed(client, name)
            self.networks.succeed(client, now)
        for waiter in waiters:
            # From the generation at this request's start: its groups may differ
            own = waiter.authenticator.find(name) or account
            is_current = waiter.authenticator.remember(key, own)
            self._answer(waiter, own if is_current else EXPIRED, now)

    def _answer_all(self, flight: Flight, answer: Answer) -> None:
        now = self._clock()
        for waiter in self._remove(flight):
            self._answer(waiter, answer, now)

    def _remove(self, flight: Flight) -> list[Waiter]:
        """Removes a finished flight and returns its waiters."""
        del self._flights[flight.key]
        self._queue.remove(flight)
        self._elsewhere.discard(flight)
        self._callbacks -= len(flight.waiters)
        return [*flight.waiters]

    # What other workers verify

    def _schedule_check(self) -> None:
        if self._check is None and self._flights:
            self._check = self._loop.call_later(CHECK_S, self._check_other_workers)

    def _check_other_workers(self) -> None:
        self._check = None
        now = self._clock()
        proved, before = self._known.proved, self._proved
        self._proved = proved
        for flight in [*self._elsewhere]:
            if self._known.claim(flight.key, int(now * 1e6)):
                self._known.disclaim(flight.key)
                self._elsewhere.discard(flight)     # the other has finished, or died
                self._queue.put(flight, self._rank_of(flight))
        if proved != before:
            since_us = int((now - 20 * CHECK_S) * 1e6)
            for flight in [*self._queue]:
                if flight.authenticator.proved_us(flight.key) > since_us and (
                        account := flight.authenticator.recall(flight.value)):
                    self._finish(flight, account)
        self._dispatch()
        self._schedule_check()

    def __len__(self) -> int:
        """Number of requests that wait for an answer."""
        return self._callbacks + len(self._tarpit)

    @property
    def waiting(self) -> int:
        """Number of credentials that wait for a hash or are being hashed."""
        return len(self._flights)

    @property
    def held(self) -> int:
        """Number of requests with a delayed answer."""
        return len(self._tarpit)

    @property
    def evicted(self) -> int:
        """Number of proofs and marks evicted to make room."""
        return self._known.evicted + self._known.forgotten

    def close(self) -> None:
        """Ends without answering the requests that wait."""
        self._closed = True
        if self._check is not None:
            self._check.cancel()
        self._tarpit.close()
        self._queue.clear()
        self._flights.clear()
        self._elsewhere.clear()
        self._callbacks = 0
        self._calls.close()
        self._pool.close()
