from cutthrough.wire.http1 import Source

def rewrite_request(
    source: Source,
    pseudonym: bytes = b"cutthrough",
    upgrade: bool = False,
    cap: int | None = None,
) -> tuple[bytes, bytes] | str: ...
def rewrite_response(
    source: Source,
    pseudonym: bytes = b"cutthrough",
    close: bool = False,
    chunked: bool = True,
    upgrade: bool = False,
    cap: int | None = None,
) -> bytes | str: ...
