"""Names to addresses, off the loop: c-ares through aiodns, a cache, single flight.

/etc/hosts is honoured and localhost is this host (c-ares: RFC 6761 section 6.3). Names
are queried as they are, never completed by resolv.conf's search list. The caller passes
canonical host names, and a cache key is the canonical host name and nothing else.

A frequently used answer is refreshed before it expires, and is served after its expiry
while no name server answers (RFC 8767). See docs/dns.md.

Open questions are bounded in all and for each asker, because a question is open until
c-ares releases it, and its callers may have given up long before. If a question is
lost, because no caller waits for it, it is dropped, a channel at a time:

    resolve -> waited for -> answered, timed out -> passed to all waiting callers
                  |  ^
          abandon v  | resolve
                 lost -> answered: cached | timed out | its channel cancelled: dropped
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import aiodns
import pycares

from cutthrough.net.address import Addresses
from cutthrough.net.dns.answer import (
    ERROR,
    FAILURE_TTL,
    NOT_FOUND,
    SHORT,
    TIMEOUT,
    UNVALIDATED,
    Answer,
    answer_of_silence,
    read_answer,
    shortage_of,
)
from cutthrough.net.dns.cache import Cache
from cutthrough.net.dns.cares import Names, read_stamp
from cutthrough.net.dns.validated import ValidatedNames
from cutthrough.net.shares import Shares

log = logging.getLogger("cutthrough")

# RFC 8767 section 5, the client response timer: after it, callers get the stale answer
STALE_AFTER = 1.8
# RFC 8767 section 5: the least time between two attempts to refresh a stale answer
RECHECK = 30.0
# An answer with a shorter time is not refreshed before it expires. BIND: 9 s
PREFETCH = 10.0
# Questions to one c-ares channel before it is replaced, at least. A channel's cache has
# no bound, so the channel is replaced after as many questions as our cache has entries.
MOST_ASKED = 1000
# Open questions at a time, of two queries each. c-ares tries random 16-bit numbers
# until one is free: near 65 536 queries it does not return. Unbound: 1024 for a thread
MOST_OPEN = 2048
# Lost questions that cause a channel to be cancelled, or replaced if callers still wait
# for its other questions
MOST_LOST = 128

Callback = Callable[[Answer], None]

# No search list, no HOSTALIASES: a name from a request is never an abbreviation
_FLAGS = (
    pycares.ARES_FLAG_NOSEARCH | pycares.ARES_FLAG_NOALIASES | pycares.ARES_FLAG_EDNS
)


class _Channel:
    """A c-ares channel: its sockets, its thread, its cache."""

    def __init__(self, dns: aiodns.DNSResolver | ValidatedNames,
                 stamp: tuple[int, ...]) -> None:
        self.dns = dns
        self.stamp = stamp              # of the file that names its servers
        self.n_queries = 0
        self.waited_for = 0
        # Questions are here if no caller waits, because c-ares cannot drop a single one
        self.lost: set[_Question] = set()


class _Question:
    """A query for a name: open until c-ares releases it."""

    __slots__ = ("asker", "channel", "host", "is_again", "is_refresh", "patience",
                 "timer", "turn", "waiting")

    def __init__(self, host: bytes, asker: bytes, turn: int) -> None:
        self.host = host
        self.asker = asker              # the holder of the question's place
        self.turn = turn
        self.waiting: dict[object, Callback] = {}       # by token
        self.is_refresh = False         # for the cache: not lost when no caller waits
        self.is_again = False           # asked once more, after a shortage
        self.channel: _Channel | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.patience: asyncio.TimerHandle | None = None


class Keeping(NamedTuple):
    """How answers are kept: the fields of Cache, which are in seconds but `entries`."""

    entries: int = 10_000
    stale: float = 3600.0
    recheck: float = RECHECK
    prefetch: float = PREFETCH


KEEPING = Keeping()


class Servers(NamedTuple):
    """The name servers. `addresses`: in the order in which they are asked; without any,
    those of /etc/resolv.conf. `timeout`: seconds, for the whole answer. `dnssec`: the
    servers must validate addresses."""

    addresses: Sequence[str] = ()
    timeout: float = 5.0
    dnssec: bool = False


SERVERS = Servers()


class Resolver(Cache):
    """Resolves host names for one worker.

    `overrides` are (name, address): such a name is never queried. `most_open` bounds
    the open questions.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        servers: Servers = SERVERS,
        keeping: Keeping = KEEPING,
        overrides: Iterable[tuple[str, str]] = (),
        *,
        most_open: int = MOST_OPEN,
    ) -> None:
        super().__init__(keeping.entries, stale=keeping.stale, recheck=keeping.recheck,
                         prefetch=keeping.prefetch)
        self._loop = loop
        self._timeout = servers.timeout
        self._most_asked = max(keeping.entries, MOST_ASKED)
        self._servers = list(servers.addresses) or None
        self._dnssec = servers.dnssec
        # Two, because c-ares' own cache would answer a prefetch with the answer about
        # to expire: the channel that did not give that answer sends the query.
        self._channels: list[_Channel | None] = [None, None]
        self._retired: set[_Channel] = set()    # replaced, not closed yet
        self._questions: dict[bytes, _Question] = {}
        self._tokens: dict[object, _Question] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self.shares = Shares(most_open)
        self.queries = 0
        self.answered = 0  # queries answered with addresses
        self.dropped = 0  # queries given up by all their callers
        self.outages = 0  # times that a stale answer replaced a missing one
        self.failures = dict.fromkeys(
            (NOT_FOUND, TIMEOUT, ERROR, UNVALIDATED, SHORT), 0)
        # Called with the errno if a question lacks descriptors. True: some were closed
        self.on_shortage: Callable[[int], bool] = lambda error: False
        fixed: dict[str, list[str]] = {}
        for name, address in overrides:
            fixed.setdefault(name, []).append(address)
        for name, addresses in fixed.items():
            self.pin(name.encode(), Addresses(addresses))

    def resolve(self, host: bytes, callback: Callback, asker: bytes = b"",
                token: object = None, port: int = 0, user: bytes | None = None
                ) -> None:
        """Calls `callback(answer)` later; all callers for a name share one question.

        The question takes a place in the share of `asker`. `token` is unique; a caller
        that stops waiting passes it to `abandon`. `port` and `user`: the request's, for
        a resolver that depends on them.
        """
        question = self._questions.get(host) or self._begin(host, asker)
        if isinstance(question, str):
            answer = self.revive(host) if self.has_outlived(host) else None
            if answer is not None:
                self.stale += 1
            self._loop.call_soon(callback, question if answer is None else answer)
            return
        self._hold(question)
        token = callback if token is None else token
        question.waiting[token] = callback
        self._tokens[token] = question

    def abandon(self, token: object) -> None:
        """Cancels the callback of this token. Idempotent."""
        question = self._tokens.pop(token, None)
        if question is None:
            return
        del question.waiting[token]
        if not question.waiting and not question.is_refresh:
            self.dropped += 1
            self._lose(question)

    def refresh(self, host: bytes) -> None:
        """Queries `host`, unless a query is under way or no place is free."""
        question = self._questions.get(host) or self._begin(host, b"")
        if not isinstance(question, str):
            self._hold(question)
            question.is_refresh = True

    def _begin(self, host: bytes, asker: bytes) -> "_Question | str":
        """Starts a query. Returns the question, or the label of its refusal."""
        label = self.shares.take(asker)
        if label:
            return label
        question = _Question(host, asker, self.next_turn(host))
        self._questions[host] = question
        self.queries += 1
        question.timer = self._loop.call_later(self._timeout, self._expire, question)
        if self.has_outlived(host):
            question.patience = self._loop.call_later(STALE_AFTER, self._stand_in, host)
        self._send(question)
        return question

    def _send(self, question: _Question) -> None:
        try:
            channel = question.channel = self._channel_of(question.turn)
            channel.n_queries += 1
            channel.waited_for += 1
            channel.dns.getaddrinfo(
                question.host.decode(), family=socket.AF_UNSPEC, type=socket.SOCK_STREAM
            ).add_done_callback(partial(self._on_answer, question))
        except (OSError, UnicodeError, pycares.AresError) as error:
            self._loop.call_soon(self._give_up, question, shortage_of(error))

    def _channel_of(self, turn: int) -> _Channel:
        channel = self._channels[turn]
        stamp = () if self._servers else read_stamp()
        if channel is not None and (
                channel.n_queries >= self._most_asked or channel.stamp != stamp):
            self._retire(channel)
            channel = None
        if channel is None:
            channel = self._channels[turn] = _Channel(self._open(), stamp)
        return channel

    def _open(self) -> aiodns.DNSResolver | ValidatedNames:
        if self._dnssec:
            return ValidatedNames(self._loop, self._servers or [], self._timeout)
        # One server's time, short enough that the last server is queried, too;
        # resolv.conf has three at most (MAXNS).
        turns = max(3, len(self._servers or ()))
        return Names(
            nameservers=self._servers,
            loop=self._loop,
            flags=_FLAGS,
            timeout=max(self._timeout / turns, 0.1),
            tries=3,
        )

    # --- places: a question has one until c-ares releases it

    def _hold(self, question: _Question) -> None:
        """Marks the question as waited for."""
        channel = question.channel
        if channel is not None and question in channel.lost:
            channel.lost.remove(question)
            channel.waited_for += 1

    def _lose(self, question: _Question) -> None:
        """Marks the question as lost. If an answer still comes, it is cached."""
        channel = question.channel
        if channel is not None and question not in channel.lost:
            channel.lost.add(question)
            channel.waited_for -= 1
            self._tidy(channel)

    def _release(self, question: _Question) -> None:
        """Called if c-ares has released the question."""
        channel, question.channel = question.channel, None
        self.shares.give(question.asker)
        if channel is not None:
            if question in channel.lost:
                channel.lost.remove(question)
            else:
                channel.waited_for -= 1
            self._tidy(channel)

    def _tidy(self, channel: _Channel) -> None:
        """Drops a channel's lost questions, because c-ares drops no single one."""
        is_used = channel in self._channels
        if channel.waited_for:
            if is_used and len(channel.lost) >= MOST_LOST:
                self._retire(channel)
        elif not is_used:
            self._retired.discard(channel)
            self._forget_lost(channel)
            task = self._loop.create_task(channel.dns.close())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif len(channel.lost) >= MOST_LOST:
            self._forget_lost(channel)
            channel.dns.cancel()

    def _retire(self, channel: _Channel) -> None:
        """Sends the channel no more questions; closes it once no caller waits."""
        self._channels[self._channels.index(channel)] = None
        self._retired.add(channel)
        if not channel.waited_for:
            self._tidy(channel)

    def _forget_lost(self, channel: _Channel) -> None:
        lost, channel.lost = channel.lost, set()
        for question in lost:
            question.channel = None
            self.shares.give(question.asker)
            self._end(question)

    # --- answers

    def _on_answer(self, question: _Question,
                   future: "asyncio.Future[Any]") -> None:
        if future.cancelled():
            return
        answer, keep = read_answer(future)        # read always: else asyncio reports it
        if question.channel is None or self._closed:
            return                          # dropped
        self._release(question)
        if self._questions.get(question.host) is not question:
            return
        shortage = shortage_of(future.exception())
        # c-ares gives a server as long as it usually takes, three times: a name that
        # takes longer is asked for again, until `_expire`
        if answer == TIMEOUT and not shortage and (question.waiting or
                question.is_refresh) and not self.shares.take(question.asker):
            self._send(question)
        else:
            self._finish(question, shortage, answer, keep)

    def _expire(self, question: _Question) -> None:
        """Ends a question at its timeout, though c-ares may go on."""
        self._settle(question, *answer_of_silence())
        self._lose(question)

    def _give_up(self, question: _Question, shortage: int) -> None:
        """Ends a question that could not be sent."""
        if self._questions.get(question.host) is question:
            self._release(question)
            self._finish(question, shortage, ERROR, FAILURE_TTL)

    def _finish(self, question: _Question, shortage: int, answer: Answer, keep: float
                ) -> None:
        """Settles a question that was released, or asks once more: `shortage` is the
        errno of what was lacking, if it was never sent, and some may be free now."""
        if not shortage:
            self._settle(question, answer, keep)
        elif question.is_again or not question.waiting or (
                not self.on_shortage(shortage) or self.shares.take(question.asker)):
            self._settle(question, SHORT, 0)
        else:
            question.is_again = True
            self._send(question)

    def _end(self, question: _Question) -> None:
        if self._questions.get(question.host) is question:
            del self._questions[question.host]
        for timer in (question.timer, question.patience):
            if timer is not None:
                timer.cancel()

    def _settle(self, question: _Question, answer: Answer, keep: float) -> None:
        host = question.host
        if isinstance(answer, str):
            self.failures[answer] += 1
            # RFC 8767 section 4: "no such name" is an answer, and replaces the old one;
            # so does one that is not validated
            if answer not in (NOT_FOUND, UNVALIDATED) and self._stand_in(host):
                self._end(question)
                return
        else:
            self.answered += 1
        self._end(question)
        if keep:                            # a shortage may be over at once
            self.put(host, answer, keep, question.turn)
        self._tell(question, answer)

    def _tell(self, question: _Question, answer: Answer) -> int:
        """Calls the waiting callers. Returns how many."""
        waiting, question.waiting = question.waiting, {}
        for token in waiting:
            del self._tokens[token]
        for callback in waiting.values():
            callback(answer)
        return len(waiting)

    def _stand_in(self, host: bytes) -> bool:
        """Gives the waiting callers the cached answer. False: there is none."""
        outlived = self.has_outlived(host)
        answer = self.revive(host)
        if answer is None:
            return False
        question = self._questions[host]
        question.is_refresh = True
        if outlived:
            self._note_outage(len(question.waiting))
        self._tell(question, answer)
        return True

    def _note_outage(self, waiting: int) -> None:
        self.stale += waiting
        self.outages += 1
        if self.outages & (self.outages - 1) == 0:  # the 1st, 2nd, 4th, 8th: no flood
            log.warning(
                "name servers do not answer: expired addresses are used "
                "(%d times so far)",
                self.outages,
            )

    def stats(self) -> dict[str, int]:
        """Counters since the start, and current entries and open questions."""
        return {
            "queries": self.queries,
            "answered": self.answered,
            "hits": self.hits,
            "stale": self.stale,
            "prefetches": self.prefetches,
            "evicted": self.evicted,
            "entries": len(self),
            "open": self.shares.taken,
            "dropped": self.dropped,
            "refused": self.shares.refused,
            **self.failures,
        }

    async def close(self) -> None:
        """Ends all questions, without calling their callers."""
        self._closed = True
        for question in list(self._questions.values()):
            self._end(question)
        self._tokens.clear()
        for channel in (*self._channels, *self._retired):
            if channel is not None:
                await channel.dns.close()
        self._channels = [None, None]
        self._retired.clear()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.clear()
