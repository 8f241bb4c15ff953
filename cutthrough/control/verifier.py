"""Password hashes, computed beside the loop: bounded, one for each credential (R24).

    verify ─ a thread free? ─> thread ─> settle ─> every callback of that credential
         └─> waiting, or at once: auth_throttled (too many wrong), overloaded (no place)
             and whether it is the configuration's own password, which is no hash

All of it runs in the loop but `Authenticator.verify`. The threads are nicer than the
loop: bcrypt and its like release the interpreter's lock, and then compete for the cores
with the requests of everybody who is known already.
"""

import asyncio
import contextlib
import logging
import os
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable

from cutthrough.policy.auth import Account, Authenticator

log = logging.getLogger("cutthrough")

Answer = Account | str      # the account, or the label of an outcome
Callback = Callable[[Answer], None]

FAILED = "auth_failed"
EXPIRED = "auth_expired"
THROTTLED = "auth_throttled"
OVERLOADED = "overloaded"

# Of 40 steps to 19: a tenth of a busy core's time, all of an idle one's.
NICENESS = 10

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

    def fail(self, client: bytes, now: float) -> None:
        count, last = self._failures.pop(client, (0, 0.0))
        if now > last + FORGET_AFTER:
            count = 0
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


class Flight:
    """One credential under verification, and who waits for it."""

    def __init__(self, authenticator: Authenticator, value: bytes, tag: bytes) -> None:
        self.authenticator = authenticator
        self.value = value
        self.tag = tag
        self.callbacks: list[tuple[bytes, Callback]] = []


class Verifier:
    """Verifies credentials for one worker, in `threads` threads made when first needed.

    `most_waiting` bounds how many credentials wait or are worked on, and how many
    requests wait for them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = 2,
                 most_waiting: int = 128) -> None:
        self._loop = loop
        self._most_threads = threads
        self._most_waiting = most_waiting
        self._threads: list[threading.Thread] = []
        self._jobs: queue.SimpleQueue[Flight | None] = queue.SimpleQueue()
        self._flights: dict[bytes, Flight] = {}
        self._waiting: deque[Flight] = deque()
        self._callbacks = 0
        self._running = 0
        self._closed = False
        self.backoff = Backoff()
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
        if self.backoff.is_closed(client, self._loop.time()):
            self.throttled += 1
            callback(THROTTLED)
            return
        account = authenticator.compare(value)
        if account is not None or not authenticator.has_table:
            callback(self._judge(authenticator, value, account, {client}))
            return
        tag = authenticator.tag(value)
        flight = self._flights.get(tag)
        if self._closed or self._is_full(flight is None):
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
        self._waiting.append(flight)
        self._dispatch()

    def _is_full(self, new: bool) -> bool:
        # More requests of one credential cost no thread: a browser opens dozens
        return (new and len(self._flights) >= self._most_waiting) or (
            self._callbacks >= 16 * self._most_waiting)

    def _dispatch(self) -> None:
        while self._waiting and self._running < self._most_threads:
            flight = self._waiting.popleft()
            now = self._loop.time()
            # Wrong ones that were let in before the first of them was known to be wrong
            if all(self.backoff.is_closed(one, now) for one, _ in flight.callbacks):
                self.throttled += len(flight.callbacks)
                self._answer(flight, THROTTLED)
                continue
            if len(self._threads) < self._most_threads:
                self._start_thread()
            self._running += 1
            self._jobs.put(flight)

    def _start_thread(self) -> None:
        # A daemon: an exit does not wait for a hash that nobody asks for any more
        thread = threading.Thread(
            target=self._work, name=f"verifier-{len(self._threads)}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def _work(self) -> None:
        os.nice(NICENESS)               # of this thread alone: nice(2), sched(7)
        while (flight := self._jobs.get()) is not None:
            account, fault = None, ""
            try:
                account = flight.authenticator.verify(flight.value)
            except Exception as error:  # a library that is missing, or refuses the hash
                fault = type(error).__name__        # its text may hold the secret (R37)
            with contextlib.suppress(RuntimeError):             # the loop has ended
                self._loop.call_soon_threadsafe(self._settle, flight, account, fault)

    def _settle(self, flight: Flight, account: Account | None, fault: str) -> None:
        self._running -= 1
        if self._closed:
            return
        if fault:
            log.error("a password hash could not be computed: %s", fault)
        self._answer(flight, self._judge(
            flight.authenticator, flight.value, account,
            {client for client, _ in flight.callbacks}))
        self._dispatch()

    def _judge(self, authenticator: Authenticator, value: bytes,
               account: Account | None, clients: set[bytes]) -> Answer:
        """What is answered, and held against those who asked or forgiven them."""
        if account is None:
            self.failed += 1
            now = self._loop.time()
            for client in clients:
                self.backoff.fail(client, now)
            return FAILED
        self.verified += 1
        for client in clients:
            self.backoff.succeed(client)
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
        """Ends: nobody is called any more, and each thread ends after its hash."""
        self._closed = True
        self._waiting.clear()
        self._flights.clear()
        self._callbacks = 0
        for _ in self._threads:
            self._jobs.put(None)
