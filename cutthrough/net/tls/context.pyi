from collections.abc import Iterable
from typing import Literal, NamedTuple

from cutthrough.net.tls.certificates import Certificate, Pair
from cutthrough.net.tls.ticket_keys import TicketKeys

class TlsContext:
    names_peer: bool
    makes_leaves: bool
    certificates: list[Certificate]

class ClientCheck(NamedTuple):
    ca: bytes = b""
    crl: bytes = b""
    certificate: str = "none"
    by_name: tuple[tuple[str, bytes], ...] = ()

class TlsServer(TlsContext):
    def __init__(
        self,
        pairs: Iterable[Pair],
        *,
        min_version: str = "1.2",
        ciphers: str = "",
        groups: str = "",
        clients: ClientCheck = ...,
        keys: TicketKeys | None = None,
        http2: bool = False,
        sni_strict: bool = False,
    ) -> None: ...

class TlsClient(TlsContext):
    def __init__(
        self,
        *,
        ca: bytes = b"",
        crl: bytes = b"",
        pair: Pair | None = None,
        min_version: str = "1.2",
        alpn: str = "http/1.1",
        resumes: Literal["", "server", "name"] = "",
    ) -> None: ...
