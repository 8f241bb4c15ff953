"""The TLS contexts of a worker's interception, through reloads.

The context of origins gets a new number if its authorities change: idle connections are
pooled by it, and those of the old one must not be used again. That of clients keeps its
number; open connections keep the context that they began with.
"""

from typing import TYPE_CHECKING, Any

from cutthrough.generation.interception import (
    InterceptionFiles,
    make_interceptor,
    make_origin_client,
    offers_origins_http2,
)

if TYPE_CHECKING:
    from cutthrough.net.leaves import TlsInterceptor


class TlsInterception:
    """The numbers of the contexts; both 0 without interception."""

    def __init__(self) -> None:
        self._digest = b""
        self._numbers: list[int] = []
        self._server: TlsInterceptor | None = None
        self._earlier = {"made": 0, "kept": 0}      # leaves of earlier contexts
        self.client_tls = 0
        self.origin_tls = 0                         # plus 1: Hop.tls
        self.origin_tls_11 = 0                      # the same, without HTTP/2
        self.passes_offers = False

    def configure(self, files: InterceptionFiles | None) -> None:
        """Raises ValueError if a context cannot be made; then nothing has changed."""
        if files is None or files.digest == self._digest:
            return                                  # connections may still need them
        from cutthrough.net import tls

        server = make_interceptor(files)
        clients = [make_origin_client(files, http2=False)]
        if offers_origins_http2(files):
            clients.append(make_origin_client(files, http2=True))
        self._earlier = self.stats()
        if self._server is None:
            self.client_tls = tls.put(server)
            self._numbers.append(self.client_tls)
        else:
            tls.put(server, self.client_tls)
        self._server = server
        numbers = [tls.put(client) for client in clients]
        self._numbers += numbers
        self.origin_tls, self.origin_tls_11 = numbers[-1] + 1, numbers[0] + 1
        self.passes_offers = files.origin_hello == "client"
        self._digest = files.digest

    def of_session(self) -> dict[str, Any]:
        """For Context.configure."""
        return {"client_tls": self.client_tls, "origin_tls": self.origin_tls,
                "origin_tls_11": self.origin_tls_11,
                "passes_offers": self.passes_offers}

    def stats(self) -> dict[str, int]:
        """Leaves: made, and taken from those kept."""
        if self._server is None:
            return dict(self._earlier)
        return {"made": self._earlier["made"] + self._server.minted,
                "kept": self._earlier["kept"] + self._server.found}

    def close(self) -> None:
        while self._numbers:
            from cutthrough.net import tls

            tls.remove(self._numbers.pop())
