"""The operator's function says where a request goes, before the name servers are asked.

    resolve(host, port, user) -> addresses, or None: the usual resolution

It is asked for each connection that a request needs, and its answers are not cached:
the same name may lead each user elsewhere. Requests of one user for the same host and
port share one call. A call is cancelled when its last request has gone; it holds its
place until the function has ended. The names of parents and of checks, which are no
request's, have no port here and are never the function's.

    resolve ─> function ─> addresses ─────────────────────> passed to all that wait
                  ├─> None ─> cache ─> name servers ────────────^
                  └─> an exception, no answer in time ─> dns_error, dns_timeout
"""

import asyncio
import ipaddress
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from itertools import islice

from cutthrough import contained
from cutthrough.net.address import Addresses
from cutthrough.net.dns.answer import ERROR, NOT_FOUND, TIMEOUT, Answer
from cutthrough.net.dns.resolver import (
    KEEPING,
    SERVERS,
    Callback,
    Keeping,
    Resolver,
    Servers,
)
from cutthrough.net.shares import Shares

log = logging.getLogger("cutthrough")

# Calls under way: a function that hangs must not pile up tasks without end (R31)
MOST_CALLS = 1024
# Addresses of an answer: `Addresses` has no more, and an iterator may have no end
MOST_ADDRESSES = 16

Given = Iterable[str] | None
Function = Callable[[str, int, str], Given | Awaitable[Given]]
Key = tuple[bytes, int, bytes]


class _Call:
    """A call under way, and by token the requests that wait for it."""

    __slots__ = ("asker", "key", "task", "waiting")

    def __init__(self, key: Key, asker: bytes) -> None:
        self.key = key
        self.asker = asker              # the holder of its place
        self.waiting: dict[object, tuple[Callback, bytes]] = {}
        self.task: contained.Begun[None] | None = None


class FunctionResolver(Resolver):
    """A Resolver with a function before it. The timeout of `servers` bounds the
    function, and then the name servers; `most_calls` the calls under way."""

    def __init__(
        self, function: Function, loop: asyncio.AbstractEventLoop,
        servers: Servers = SERVERS, keeping: Keeping = KEEPING,
        overrides: Iterable[tuple[str, str]] = (), *, most_calls: int = MOST_CALLS,
    ) -> None:
        super().__init__(loop, servers, keeping, overrides)
        self._function = function
        self._places = Shares(most_calls)
        self._calls: dict[Key, _Call] = {}
        self._called: dict[object, _Call] = {}          # by token
        self._running: set[asyncio.Task[None]] = set()
        self.faults = 0

    def cached(self, host: bytes) -> Answer | None:
        """None: each request is the function's."""
        return None

    def resolve(self, host: bytes, callback: Callback, asker: bytes = b"",
                token: object = None, port: int = 0, user: bytes | None = None
                ) -> None:
        token = callback if token is None else token
        if not port:
            self._resolve_usually(host, callback, asker, token)
            return
        key = (host, port, user or b"")
        call = self._calls.get(key)
        if call is None:
            label = self._places.take(asker)
            if label:
                self._loop.call_soon(callback, label)
                return
            call = self._calls[key] = _Call(key, asker)
            task = call.task = contained.Begun(self._run(call), loop=self._loop)
            self._running.add(task)
            task.add_done_callback(partial(self._on_end, asker))
        call.waiting[token] = (callback, asker)
        self._called[token] = call

    def abandon(self, token: object) -> None:
        call = self._called.pop(token, None)
        if call is None:
            super().abandon(token)
            return
        del call.waiting[token]
        if not call.waiting and call.task is not None:
            self.dropped += 1
            del self._calls[call.key]
            call.task.end()

    def _on_end(self, asker: bytes, task: "asyncio.Task[None]") -> None:
        self._running.discard(task)
        self._places.give(asker)

    async def _run(self, call: _Call) -> None:
        answer: Answer | None = ERROR
        try:
            answer = await asyncio.wait_for(self._ask(call.key), self._timeout)
        except Exception as error:      # the operator's code: it may raise anything
            answer = TIMEOUT if isinstance(error, TimeoutError) else ERROR
            self._report(error)
        except asyncio.CancelledError:
            if not call.waiting:
                raise
            self._report(RuntimeError("its task was cancelled"))
        finally:
            if self._calls.get(call.key) is call:
                del self._calls[call.key]
            waiting, call.waiting = call.waiting, {}
            for token in waiting:
                del self._called[token]
        if isinstance(answer, str):
            self.failures[answer] += 1
        elif answer is not None:
            self.answered += 1
        for token, (callback, asker) in waiting.items():
            if answer is None:
                self._resolve_usually(call.key[0], callback, asker, token)
            else:
                callback(answer)

    async def _ask(self, key: Key) -> Answer | None:
        host, port, user = key
        result = await contained.call(
            self._function, host.decode(), port, user.decode("utf-8", "replace"))
        return None if result is None else await contained.call(_read, result)

    def _resolve_usually(self, host: bytes, callback: Callback, asker: bytes,
                         token: object) -> None:
        answer = super().cached(host)
        if answer is None:
            super().resolve(host, callback, asker, token)
        else:
            self._loop.call_soon(callback, answer)

    def _report(self, error: Exception) -> None:
        self.faults += 1
        if self.faults & (self.faults - 1) == 0:        # the 1st, 2nd, 4th, 8th …
            reason = "no answer in time" if isinstance(error, TimeoutError) else error
            log.error("the dns hook failed (%d so far): %s: %s", self.faults,
                      type(error).__name__, reason)

    def stats(self) -> dict[str, int]:
        stats = super().stats()
        stats["open"] += self._places.taken
        stats["refused"] += self._places.refused
        return stats

    async def close(self) -> None:
        for call in self._calls.values():
            call.waiting.clear()
        self._called.clear()
        await contained.end(self._running)
        await super().close()


def _read(value: Iterable[str]) -> Answer:
    """Raises ValueError if it has anything but addresses without a zone."""
    if isinstance(value, str):
        raise ValueError("returned a text, not a list of addresses")
    texts = [str(ipaddress.ip_address(str(text)))
             for text in islice(value, MOST_ADDRESSES)]
    zoned = [text for text in texts if "%" in text]
    if zoned:
        raise ValueError(f"{zoned[0]} has a zone")
    return Addresses(texts) if texts else NOT_FOUND
