"""Names to addresses, off the loop: aiodns with a bounded cache and single flight.

/etc/hosts is honoured (c-ares reads it first), answers are kept for their TTL within
bounds, failures for a moment. What is canonical here was made so by the caller: a cache
key is the canonical host name and nothing else.
"""

import asyncio
import socket
import time
from collections.abc import Callable, Sequence

import aiodns
import pycares

from cutthrough.net.inet import Addresses

# A TTL of 0 (and every /etc/hosts line) is kept this long; nothing longer than MAX_TTL.
# Squid's defaults are 1 s (negative_dns_ttl 60 s) and 6 h, Envoy's refresh rate 60 s.
MIN_TTL = 1.0
MAX_TTL = 3600.0
FAILURE_TTL = 1.0

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


class Resolver:
    """Resolves host names for one worker.

    `servers` are addresses of resolvers (none: those of /etc/resolv.conf), `timeout` is
    in seconds for the whole answer, `entries` bounds the cache.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        servers: Sequence[str] = (),
        timeout: float = 5.0,
        entries: int = 10_000,
    ) -> None:
        self._loop = loop
        self._timeout = timeout
        self._entries = entries
        self._servers = list(servers) or None
        self._channel: aiodns.DNSResolver | None = None
        self._cache: dict[bytes, tuple[float, Answer]] = {}
        self._waiting: dict[bytes, list[Callback]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.queries = 0
        self.hits = 0
        self.failures = 0

    def cached(self, host: bytes) -> Answer | None:
        """What is known of `host` now, or None."""
        entry = self._cache.get(host)
        if entry is None:
            return None
        if entry[0] < time.monotonic():
            del self._cache[host]
            return None
        self.hits += 1
        return entry[1]

    def resolve(self, host: bytes, callback: Callback) -> None:
        """Calls `callback(answer)` later; one query for all who wait for a name."""
        waiting = self._waiting.get(host)
        if waiting is not None:
            waiting.append(callback)
            return
        self._waiting[host] = [callback]
        task = self._loop.create_task(self._query(host))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _query(self, host: bytes) -> None:
        answer: Answer = ERROR
        keep = FAILURE_TTL
        try:
            self.queries += 1
            result = await asyncio.wait_for(self._ask(host), self._timeout)
            nodes = _interleave(result.nodes)
            answer = Addresses([address for address, _ in nodes])
            if nodes:
                ttl = min(float(ttl) for _, ttl in nodes)
                keep = min(max(ttl, MIN_TTL), MAX_TTL)
            else:
                answer = NOT_FOUND
        except aiodns.error.DNSError as error:
            answer = _LABELS.get(error.args[0], ERROR)
        except TimeoutError:
            answer = TIMEOUT
        except (OSError, UnicodeError):
            answer = ERROR
        finally:
            self._settle(host, answer, keep)

    async def _ask(self, host: bytes) -> pycares.AddrInfoResult:
        if self._channel is None:
            self._channel = aiodns.DNSResolver(
                nameservers=self._servers,
                loop=self._loop,
                timeout=max(self._timeout / 3, 0.1),
                tries=3,
            )
        return await self._channel.getaddrinfo(
            host.decode(), family=socket.AF_UNSPEC, type=socket.SOCK_STREAM
        )

    def _settle(self, host: bytes, answer: Answer, keep: float) -> None:
        if isinstance(answer, str):
            self.failures += 1
        while len(self._cache) >= self._entries:
            del self._cache[next(iter(self._cache))]  # the oldest entry
        if self._entries > 0:
            self._cache[host] = (time.monotonic() + keep, answer)
        for callback in self._waiting.pop(host, ()):
            callback(answer)

    def __len__(self) -> int:
        return len(self._cache)

    async def close(self) -> None:
        """Ends what is under way; its callers are not called any more."""
        self._waiting.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._channel is not None:
            await self._channel.close()
            self._channel = None


def _interleave(nodes: Sequence[pycares.AddrInfoNode]) -> list[tuple[str, int]]:
    """In the resolver's order (RFC 6724), the families taken in turn (RFC 8305)."""
    families: dict[int, list[tuple[str, int]]] = {}
    for node in nodes:
        text = node.addr[0]
        if isinstance(text, bytes):
            text = text.decode()
        found = families.setdefault(node.family, [])
        if (text, node.ttl) not in found:
            found.append((text, node.ttl))
    queues = list(families.values())
    longest = max((len(queue) for queue in queues), default=0)
    return [q[i] for i in range(longest) for q in queues if i < len(q)]
