"""The TLS contexts of a worker's interception, through reloads.

Each client certificate, and none, has contexts of origins with numbers of their own.
Idle connections are pooled by them, so nobody gets a connection that another
certificate has opened (R46). If authorities or a certificate change, the numbers are
new. A number is never used again, because requests that began before the reload may
still have it. The context of clients keeps its number; open connections keep the
context that they began with.
"""

import time
from typing import TYPE_CHECKING, NamedTuple

from cutthrough.generation.interception import (
    InterceptionFiles,
    make_interceptor,
    make_origin_client,
    offers_origins_http2,
)
from cutthrough.generation.tls_files import PairFiles
from cutthrough.worker.transaction import Transaction

if TYPE_CHECKING:
    from cutthrough.net.tls.context import TlsClient, TlsContext
    from cutthrough.net.tls.leaves import TlsInterceptor

# Seconds in which a request that began before a reload may still dial by its contexts
LATE_S = 600.0


class Numbers(NamedTuple):
    """The numbers of one generation; 0 and {} if nothing was ever intercepted."""

    # Of each client certificate, and of none (""): Hop.tls, and the same for
    # connections that must be HTTP/1.1
    origins: dict[str, tuple[int, int]]
    client_tls: int                          # of Context.configure, and the next one
    passes_offers: bool


class TlsInterception:
    """The numbers of the contexts; 0 and {} without interception."""

    def __init__(self) -> None:
        self._digest = b""
        self._server: TlsInterceptor | None = None
        self._earlier = {"made": 0, "kept": 0}      # leaves of earlier contexts
        self._numbers: list[int] = []               # all of them
        self._of_origins: dict[bytes, tuple[int, int]] = {}     # by digest
        self._late: dict[tuple[int, int], float] = {}           # unused, since when
        self.client_tls = 0
        self.origins: dict[str, tuple[int, int]] = {}
        self.passes_offers = False

    def prepare(self, files: InterceptionFiles | None, transaction: Transaction
                ) -> Numbers:
        """Returns the numbers of this generation. Raises ValueError if a context cannot
        be made."""
        if files is None:                           # connections may still need them
            return Numbers(self.origins, self.client_tls, self.passes_offers)
        from cutthrough.net.tls import transport as tls

        pairs: dict[str, PairFiles | None] = {"": None, **dict(files.pairs)}
        wanted = {name: files.origin_digest(pair) for name, pair in pairs.items()}
        of_origins = dict(self._of_origins)
        for name, digest in wanted.items():
            if digest not in of_origins:
                numbers = [self._put(client, transaction)
                           for client in _make_clients(files, pairs[name])]
                of_origins[digest] = numbers[-1] + 1, numbers[0] + 1
        client_tls = self.client_tls
        if files.digest != self._digest:
            server = make_interceptor(files)
            if self._server is None:
                client_tls = self._put(server, transaction)
            else:
                transaction.on_commit(tls.put, server, client_tls)
            transaction.on_commit(self._assign_server, server, files.digest, client_tls)
        origins = {name: of_origins[digest] for name, digest in wanted.items()}
        passes_offers = files.origin_hello == "client"
        transaction.on_commit(self._assign, of_origins, origins, passes_offers)
        transaction.on_commit(self._give_up_late, {*wanted.values()})
        return Numbers(origins, client_tls, passes_offers)

    def _put(self, context: "TlsContext", transaction: Transaction) -> int:
        from cutthrough.net.tls import transport as tls

        number = tls.put(context)
        transaction.on_discard(tls.remove, number)
        transaction.on_commit(self._numbers.append, number)
        return number

    def _assign_server(self, server: "TlsInterceptor", digest: bytes, client_tls: int
                       ) -> None:
        self._earlier = self.stats()
        self._server, self._digest, self.client_tls = server, digest, client_tls

    def _assign(self, of_origins: dict[bytes, tuple[int, int]],
                origins: dict[str, tuple[int, int]], passes_offers: bool) -> None:
        self._of_origins = of_origins
        self.origins, self.passes_offers = origins, passes_offers

    def _give_up_late(self, wanted: set[bytes]) -> None:
        """Frees the contexts that nobody has wanted for long; their numbers stay taken.
        """
        from cutthrough.net.tls import transport as tls
        from cutthrough.net.tls.context import TlsContext

        now = time.monotonic()
        for digest in self._of_origins.keys() - wanted:
            self._late[self._of_origins.pop(digest)] = now
        for numbers, since in list(self._late.items()):
            if now - since > LATE_S:
                del self._late[numbers]
                for number in {*numbers}:
                    tls.put(TlsContext(), number - 1)

    def stats(self) -> dict[str, int]:
        """Leaves: made, and taken from those kept."""
        if self._server is None:
            return dict(self._earlier)
        return {"made": self._earlier["made"] + self._server.minted,
                "kept": self._earlier["kept"] + self._server.found}

    def close(self) -> None:
        while self._numbers:
            from cutthrough.net.tls import transport as tls

            tls.remove(self._numbers.pop())


def _make_clients(files: InterceptionFiles,
                  pair: PairFiles | None) -> list["TlsClient"]:
    """The first offers HTTP/1.1 alone, the last HTTP/2 if origins are offered it."""
    return [make_origin_client(files, pair, http2=http2) for http2 in (
        (False, True) if offers_origins_http2(files) else (False,))]
