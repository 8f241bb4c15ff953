from cutthrough.net.tls.context import TlsContext

MOST_LEAVES: int

class TlsInterceptor(TlsContext):
    minted: int
    found: int
    kept: int
    def __init__(
        self, certificate: bytes, key: bytes, most: int = ..., http2: bool = False
    ) -> None: ...
    def leaf(self, name: str) -> bytes: ...
