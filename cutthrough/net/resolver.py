"""Names to addresses, off the loop: c-ares through aiodns, a cache, single flight.

/etc/hosts is honoured and localhost is this host (c-ares: RFC 6761 section 6.3); a name
is asked for as it stands, never completed by resolv.conf's search list. What is
canonical here was made so by the caller: a cache key is the canonical host name and
nothing else.

An answer that is used often is asked for again before it ends, and outlives its time
while no name server answers (RFC 8767). See docs/dns.md.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sequence

import aiodns
import pycares

from cutthrough.net.cache import Cache
from cutthrough.net.inet import Addresses

log = logging.getLogger("cutthrough")

# A TTL of 0 (and every /etc/hosts line) is kept this long; nothing longer than MAX_TTL,
# which is c-ares' own bound too. Squid: 6 h, Envoy's refresh rate: 60 s.
MIN_TTL = 1.0
MAX_TTL = 3600.0
# pycares does not hand out the SOA of a negative answer; c-ares itself honours its
# minimum (RFC 2308 section 5), MAX_TTL at most. Here it is kept for CoreDNS's least TTL
# of a denial, and then it is c-ares that is asked.
NOT_FOUND_TTL = 5.0
# RFC 9520 section 3.2: a failure is kept for a second at least
FAILURE_TTL = 1.0
# RFC 8767 section 5, the client response timer: who waited so long gets what is there
STALE_AFTER = 1.8
# RFC 8767 section 5: no attempt to refresh a stale answer more often than that
RECHECK = 30.0
# An answer with a shorter time is not refreshed ahead of its end. BIND: 9 s
PREFETCH = 10.0
# Questions to one c-ares channel, at least: its cache has a time for each answer, and
# no bound, so it goes when it has been asked as often as our own cache is large.
MOST_ASKED = 1000

NOT_FOUND = "dns_not_found"
TIMEOUT = "dns_timeout"
ERROR = "dns_error"

Answer = Addresses | str  # the addresses, or the label of the outcome
Callback = Callable[[Answer], None]

_LABELS = {
    pycares.errno.ARES_ENOTFOUND: NOT_FOUND,
    pycares.errno.ARES_ENODATA: NOT_FOUND,
    pycares.errno.ARES_EBADNAME: NOT_FOUND,
    pycares.errno.ARES_ETIMEOUT: TIMEOUT,
}

# No search list, no HOSTALIASES: a name of the wire is no abbreviation
_FLAGS = (
    pycares.ARES_FLAG_NOSEARCH | pycares.ARES_FLAG_NOALIASES | pycares.ARES_FLAG_EDNS
)


class _Channel:
    """A c-ares channel: its sockets, its thread, its cache."""

    def __init__(self, dns: aiodns.DNSResolver) -> None:
        self.dns = dns
        self.asked = 0
        self.open = 0


class Resolver(Cache):
    """Resolves host names for one worker.

    `servers` are addresses of resolvers in their order (none: those of
    /etc/resolv.conf), `timeout` is in seconds for the whole answer, `entries` bounds
    the cache, `stale` is how many seconds an answer may outlive its time, `overrides`
    are (name, address): such a name is never asked for. `recheck` and `prefetch`: see
    Cache.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        servers: Sequence[str] = (),
        timeout: float = 5.0,
        entries: int = 10_000,
        stale: float = 3600.0,
        overrides: Iterable[tuple[str, str]] = (),
        *,
        recheck: float = RECHECK,
        prefetch: float = PREFETCH,
    ) -> None:
        super().__init__(entries, stale=stale, recheck=recheck, prefetch=prefetch)
        self._loop = loop
        self._timeout = timeout
        self._most_asked = max(entries, MOST_ASKED)
        self._servers = list(servers) or None
        # Two, because c-ares' own cache would answer a prefetch with what is about to
        # expire: each is asked by the channel that did not give the answer at hand.
        self._channels: list[_Channel | None] = [None, None]
        self._waiting: dict[bytes, list[Callback]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.queries = 0
        self.answered = 0  # of these, with addresses
        self.outages = 0  # times that a stale answer stood in
        self.failures = dict.fromkeys((NOT_FOUND, TIMEOUT, ERROR), 0)
        fixed: dict[str, list[str]] = {}
        for name, address in overrides:
            fixed.setdefault(name, []).append(address)
        for name, addresses in fixed.items():
            self.pin(name.encode(), Addresses(addresses))

    def resolve(self, host: bytes, callback: Callback) -> None:
        """Calls `callback(answer)` later; one query for all who wait for a name."""
        self.refresh(host)
        self._waiting[host].append(callback)

    def refresh(self, host: bytes) -> None:
        """Has `host` asked for, unless that is under way."""
        if host in self._waiting:
            return
        self._waiting[host] = []
        task = self._loop.create_task(self._query(host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _query(self, host: bytes) -> None:
        answer: Answer = ERROR
        keep = FAILURE_TTL
        turn = self.next_turn(host)
        patience = None
        if self.has_outlived(host):
            patience = self._loop.call_later(STALE_AFTER, self._stand_in, host)
        try:
            self.queries += 1
            result = await asyncio.wait_for(self._ask(host, turn), self._timeout)
            answer = Addresses(_interleave(result.nodes))
            keep = min(max(_ttl(result), MIN_TTL), MAX_TTL)
            if not answer:
                answer, keep = NOT_FOUND, NOT_FOUND_TTL
        except aiodns.error.DNSError as error:
            answer = _LABELS.get(error.args[0], ERROR)
            if answer == NOT_FOUND:
                keep = NOT_FOUND_TTL
        except TimeoutError:
            answer = TIMEOUT
        except (OSError, UnicodeError):
            answer = ERROR
        finally:
            if patience is not None:
                patience.cancel()
            self._settle(host, answer, keep, turn)

    async def _ask(self, host: bytes, turn: int) -> pycares.AddrInfoResult:
        channel = self._channels[turn]
        if channel is None or channel.asked >= self._most_asked:
            if channel is not None and not channel.open:
                await channel.dns.close()
            channel = self._channels[turn] = _Channel(self._open())
        channel.asked += 1
        channel.open += 1
        try:
            return await channel.dns.getaddrinfo(
                host.decode(), family=socket.AF_UNSPEC, type=socket.SOCK_STREAM
            )
        finally:
            channel.open -= 1
            if channel is not self._channels[turn] and not channel.open:
                await channel.dns.close()

    def _open(self) -> aiodns.DNSResolver:
        # So short a time for one server that the last of them is asked, too;
        # resolv.conf has three at most (MAXNS).
        turns = max(3, len(self._servers or ()))
        return aiodns.DNSResolver(
            nameservers=self._servers,
            loop=self._loop,
            flags=_FLAGS,
            timeout=max(self._timeout / turns, 0.1),
            tries=3,
        )

    def _settle(self, host: bytes, answer: Answer, keep: float, turn: int) -> None:
        if host not in self._waiting:
            return  # closed meanwhile
        if isinstance(answer, str):
            self.failures[answer] += 1
            # RFC 8767 section 4: "no such name" is an answer, and replaces the old one
            if answer != NOT_FOUND and self._stand_in(host):
                del self._waiting[host]
                return
        else:
            self.answered += 1
        self.put(host, answer, keep, turn)
        for callback in self._waiting.pop(host):
            callback(answer)

    def _stand_in(self, host: bytes) -> bool:
        """Gives those who wait what is there already. False: there is nothing."""
        outlived = self.has_outlived(host)
        answer = self.revive(host)
        if answer is None:
            return False
        waiting, self._waiting[host] = self._waiting[host], []
        if outlived:
            self._note_outage(len(waiting))
        for callback in waiting:
            callback(answer)
        return True

    def _note_outage(self, waiting: int) -> None:
        self.stale += waiting
        self.outages += 1
        if self.outages & (self.outages - 1) == 0:  # the 1st, 2nd, 4th, 8th: no flood
            log.warning(
                "name servers do not answer: addresses are used beyond their time "
                "(%d times so far)",
                self.outages,
            )

    def stats(self) -> dict[str, int]:
        """Counters since the start, and what is held now."""
        return {
            "queries": self.queries,
            "answered": self.answered,
            "hits": self.hits,
            "stale": self.stale,
            "prefetches": self.prefetches,
            "evicted": self.evicted,
            "entries": len(self),
            **self.failures,
        }

    async def close(self) -> None:
        """Ends what is under way; its callers are not called any more."""
        self._waiting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for channel in self._channels:
            if channel is not None:
                await channel.dns.close()
        self._channels = [None, None]
        self.clear()


def _ttl(result: pycares.AddrInfoResult) -> float:
    """The shortest of the addresses and of the aliases that led to them."""
    ttls = [alias.ttl for alias in result.cnames] + [node.ttl for node in result.nodes]
    return float(min(ttls, default=0))


def _interleave(nodes: Iterable[pycares.AddrInfoNode]) -> list[str]:
    """In the resolver's order (RFC 6724), the families taken in turn (RFC 8305)."""
    families: dict[int, dict[str, None]] = {}
    for node in nodes:
        text = node.addr[0]
        if isinstance(text, bytes):
            text = text.decode()
        families.setdefault(node.family, {})[text] = None
    queues = [list(found) for found in families.values()]
    longest = max(map(len, queues), default=0)
    return [q[i] for i in range(longest) for q in queues if i < len(q)]
