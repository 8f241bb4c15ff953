"""The TLS contexts of a worker's listeners, through reloads.

A listener keeps the number of its context. A reload puts another context under the
number: connections that are open, or in their handshake, keep the one that they began
with.
"""

from collections.abc import Sequence

from cutthrough.config.listeners import Listener
from cutthrough.generation.generation import Generation
from cutthrough.generation.tls_files import make_server
from cutthrough.net.ticket_keys import TicketKeys

NONE = -1                                    # number of a listener without TLS


class TlsListeners:
    """The numbers of contexts, by a listener's number in `listeners`: those that the
    worker has started with."""

    def __init__(self, listeners: Sequence[Listener], keys: TicketKeys | None) -> None:
        self._listeners = listeners
        self._keys = keys
        self.numbers = [NONE] * len(listeners)

    def configure(self, generation: Generation) -> None:
        """Raises ValueError if a context cannot be made; then nothing has changed.

        A worker that is being replaced may have listeners that the generation does not
        have: they keep their context.
        """
        now = [_identity(generation.config.all_listeners, n)
               for n in range(len(generation.config.all_listeners))]
        mine = [_identity(self._listeners, n) for n in range(len(self._listeners))]
        found = [(n, now.index(one)) for n, one in enumerate(mine) if one in now]
        made = [(n, make_server(generation.config.all_listeners[at],
                                generation.tls[at], self._keys))
                for n, at in found if at < len(generation.tls)]
        for n, server in made:
            if server is not None:
                from cutthrough.net import tls

                self.numbers[n] = tls.put(server, self.numbers[n])
            elif self.numbers[n] != NONE:
                self._remove(n)

    def _remove(self, n: int) -> None:
        from cutthrough.net import tls

        tls.remove(self.numbers[n])
        self.numbers[n] = NONE

    def close(self) -> None:
        for n, number in enumerate(self.numbers):
            if number != NONE:
                self._remove(n)

    def stats(self) -> dict[str, int]:
        """See net.tls; empty without TLS."""
        if all(number == NONE for number in self.numbers):
            return {}
        from cutthrough.net import tls

        return tls.stats()


def _identity(listeners: Sequence[Listener], n: int) -> tuple[object, int]:
    """Its address, and its number among equal ones."""
    addresses = [one.address for one in listeners]
    return addresses[n], addresses[:n].count(addresses[n])
