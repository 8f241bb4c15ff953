from typing import NamedTuple

class TlsError(ValueError):
    name: str
    reason: str
    def __init__(self, name: str, reason: str) -> None: ...

class Pair(NamedTuple):
    certificate: bytes
    key: bytes
    ocsp: bytes = b""
    name: str = ""

class Certificate(NamedTuple):
    name: str
    hosts: tuple[str, ...]
    key: str
    not_before: int
    not_after: int

def version() -> str: ...
def describe(data: bytes, name: str) -> list[Certificate]: ...
