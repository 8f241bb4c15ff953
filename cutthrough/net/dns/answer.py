"""An answer: addresses, or the label of a failure, and how long it is kept."""

import asyncio
import contextlib
import errno
import socket
from collections.abc import Iterable
from typing import Any

import aiodns
import pycares

from cutthrough.net.address import Addresses
from cutthrough.net.shares import ALL_TAKEN

# Seconds. A TTL of 0 (and every /etc/hosts line) is kept for MIN_TTL; no answer longer
# than MAX_TTL, c-ares' own bound too. Squid: 6 h, Envoy's refresh rate: 60 s.
MIN_TTL = 1.0
MAX_TTL = 3600.0
# pycares does not expose the SOA of a negative answer; c-ares itself honours the SOA's
# minimum (RFC 2308 section 5), MAX_TTL at most. Here a negative answer is kept for
# CoreDNS's least TTL of a denial; after that, c-ares is queried.
NOT_FOUND_TTL = 5.0
# RFC 9520 section 3.2: a failure is kept for a second at least
FAILURE_TTL = 1.0

NOT_FOUND = "dns_not_found"
TIMEOUT = "dns_timeout"
ERROR = "dns_error"
UNVALIDATED = "dns_unvalidated"
# Nobody could be asked, for want of descriptors or ports: as if no place were free
SHORT = ALL_TAKEN

Answer = Addresses | str  # the addresses, or the label of a failure

SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
# Descriptors of a c-ares channel with its first query, and some for other threads
OF_CHANNEL = 8


class Unvalidated(Exception):
    """There are addresses, and no server says that it has validated them."""


_LABELS = {
    pycares.errno.ARES_ENOTFOUND: NOT_FOUND,
    pycares.errno.ARES_ENODATA: NOT_FOUND,
    pycares.errno.ARES_EBADNAME: NOT_FOUND,
    pycares.errno.ARES_ETIMEOUT: TIMEOUT,
}


def read_answer(future: "asyncio.Future[Any]") -> tuple[Answer, float]:
    """The answer of c-ares, and for how many seconds to keep it."""
    error = future.exception()
    if isinstance(error, Unvalidated):
        return UNVALIDATED, FAILURE_TTL
    if isinstance(error, aiodns.error.DNSError):
        label = _LABELS.get(error.args[0], ERROR)
        return label, NOT_FOUND_TTL if label == NOT_FOUND else FAILURE_TTL
    if error is not None:
        return ERROR, FAILURE_TTL
    result = future.result()
    addresses = Addresses(_interleave(result.nodes))
    if not addresses:
        return NOT_FOUND, NOT_FOUND_TTL
    return addresses, min(max(_ttl(result), MIN_TTL), MAX_TTL)


def shortage_of(error: BaseException | None) -> int:
    """The errno, if it was for want of descriptors, memory or ports; 0: for another
    reason. c-ares says that it could not contact a server, or make a channel, or that
    no server has answered: this looks if a socket can be opened."""
    if isinstance(error, OSError):
        return error.errno if error.errno in SHORTAGES else _missing()
    if isinstance(error, pycares.AresError):
        return _missing(OF_CHANNEL)
    if isinstance(error, aiodns.error.DNSError) and error.args[0] in (
            pycares.errno.ARES_ECONNREFUSED, pycares.errno.ARES_ETIMEOUT):
        return _missing()
    return 0


def answer_of_silence() -> tuple[Answer, float]:
    """As read_answer, of a question that nobody has answered in time."""
    return (SHORT, 0) if _missing() else (TIMEOUT, FAILURE_TTL)


def _missing(n: int = 1) -> int:
    """The errno that keeps this process from opening so many sockets, or one of them
    from a port; 0: nothing. If no port is free, connect(2) of a UDP socket fails with
    EAGAIN, which c-ares and asyncio take for a connection under way."""
    with contextlib.ExitStack() as opened:
        try:
            for _ in range(n):
                last = opened.enter_context(socket.socket(type=socket.SOCK_DGRAM))
            last.bind(("", 0))
        except OSError as refusal:
            if refusal.errno == errno.EADDRINUSE:
                return errno.EADDRNOTAVAIL          # as of a dial
            return refusal.errno if refusal.errno in SHORTAGES else 0
    return 0


def _ttl(result: Any) -> float:
    """The least TTL of the addresses and of the aliases that led to them."""
    ttls = [alias.ttl for alias in result.cnames] + [node.ttl for node in result.nodes]
    return float(min(ttls, default=0))


def _interleave(nodes: Iterable[Any]) -> list[str]:
    """Keeps the resolver's order (RFC 6724), and alternates families (RFC 8305)."""
    families: dict[int, dict[str, None]] = {}
    for node in nodes:
        text = node.addr[0]
        if isinstance(text, bytes):
            text = text.decode()
        families.setdefault(node.family, {})[text] = None
    queues = [list(addresses) for addresses in families.values()]
    longest = max(map(len, queues), default=0)
    return [q[i] for i in range(longest) for q in queues if i < len(q)]
