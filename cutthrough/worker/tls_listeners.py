"""The TLS contexts of a worker's listeners, through reloads.

A listener keeps the number of its context, until the worker ends. A reload puts another
context under the number: connections that are open, or in their handshake, keep the
one that they began with. If a reload ends TLS for a listener, the context stays for
the connections that were accepted before, and have not begun their handshake.
"""

import sys
from collections.abc import Sequence

from cutthrough.config.config import Config
from cutthrough.config.listeners import Listener
from cutthrough.generation.generation import Generation
from cutthrough.generation.tls_files import make_server
from cutthrough.net.tls.kernel_check import why_no_kernel_tls
from cutthrough.net.tls.ticket_keys import TicketKeys
from cutthrough.worker.transaction import Transaction

NONE = -1                                    # number of a listener without TLS


def prepare_records(config: Config, transaction: Transaction) -> None:
    """Says which side seals the bytes of later connections, if there is a context."""
    # Most configurations need no libssl
    tls = sys.modules.get("cutthrough.net.tls.transport")
    if tls is not None:
        from cutthrough.net.tls.trial import why_no_own_records

        own = config.tls_records != "libssl" and not why_no_own_records()
        by_kernel = own and config.tls_records == "kernel" and not why_no_kernel_tls()
        transaction.on_commit(tls.set_own_records, own)
        transaction.on_commit(tls.set_kernel, by_kernel)


class TlsListeners:
    """The numbers of contexts, by a listener's number in `listeners`: those that the
    worker has started with."""

    def __init__(self, listeners: Sequence[Listener], keys: TicketKeys | None) -> None:
        self._listeners = listeners
        self._keys = keys
        self.numbers = [NONE] * len(listeners)
        self._kept = [*self.numbers]        # those of listeners without TLS now, too

    def prepare(self, generation: Generation, transaction: Transaction) -> None:
        """Raises ValueError if a context cannot be made."""
        listeners = generation.config.all_listeners
        numbers, kept = [*self.numbers], [*self._kept]
        for n, at in find_again(self._listeners, listeners):
            if at >= len(generation.tls):
                continue
            server = make_server(listeners[at], generation.tls[at], self._keys)
            if server is None:
                numbers[n] = NONE
                continue
            from cutthrough.net.tls import transport as tls

            if kept[n] == NONE:
                kept[n] = tls.put(server)
                transaction.on_discard(tls.remove, kept[n])
            else:
                transaction.on_commit(tls.put, server, kept[n])
            numbers[n] = kept[n]
        transaction.on_commit(self._assign, numbers, kept)

    def _assign(self, numbers: list[int], kept: list[int]) -> None:
        self.numbers, self._kept = numbers, kept

    def close(self) -> None:
        for number in self._kept:
            if number != NONE:
                from cutthrough.net.tls import transport as tls

                tls.remove(number)
        self.numbers = self._kept = [NONE] * len(self._kept)

    def stats(self) -> dict[str, int]:
        """See net.tls; empty without TLS."""
        if all(number == NONE for number in self._kept):
            return {}
        from cutthrough.net.tls import transport as tls

        return tls.stats()


def find_again(own: Sequence[Listener], now: Sequence[Listener]
               ) -> list[tuple[int, int]]:
    """The places of a worker's listeners among those of a newer generation.

    A worker that is being replaced may have listeners that the generation does not
    have: they stay as they are.
    """
    identities = [_identity(now, at) for at in range(len(now))]
    mine = [_identity(own, n) for n in range(len(own))]
    return [(n, identities.index(identity)) for n, identity in enumerate(mine)
            if identity in identities]


def _identity(listeners: Sequence[Listener], n: int) -> tuple[object, int]:
    """Returns the address of listener `n`, and its number among listeners with that
    address."""
    addresses = [listener.address for listener in listeners]
    return addresses[n], addresses[:n].count(addresses[n])
