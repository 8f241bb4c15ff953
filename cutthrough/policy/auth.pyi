from collections.abc import Mapping

from cutthrough.policy.source import User

class Account:
    name: bytes
    groups: tuple[str, ...]
    expires: float
    index: int
    def __init__(
        self,
        name: bytes,
        groups: tuple[str, ...] = (),
        expires: float = 0.0,
        index: int = 0,
    ) -> None: ...

class Authenticator:
    evicted: int
    remembered: int
    has_table: bool
    def __init__(
        self,
        inline: Mapping[bytes, bytes],
        users: Mapping[str, User] | None = None,
        cache_ttl: float = 300.0,
        groups: Mapping[bytes, tuple[str, ...]] | None = None,
    ) -> None: ...
    def tag(self, value: bytes) -> bytes: ...
    def name_of(self, value: bytes) -> bytes | None: ...
    def compare(self, value: bytes) -> Account | None: ...
    def question(self, value: bytes) -> tuple[str, bytes, Account | None]: ...
    def verify(self, value: bytes) -> Account | None: ...
    def remember(self, value: bytes, account: Account) -> bool: ...
    def check(self, value: bytes | None, at: float | None = None) -> bytes | None: ...

def siphash128(key: bytes, data: bytes) -> bytes: ...
