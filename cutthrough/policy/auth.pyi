from collections.abc import Awaitable, Callable, Mapping

from cutthrough.policy.known import Known
from cutthrough.policy.source import User

def normalized(text: bytes) -> bytes: ...

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
    known: Known
    remembered: int
    anonymous: Account
    has_table: bool
    function: Callable[[str, str], Awaitable[bool]] | None
    def __init__(
        self,
        inline: Mapping[bytes, bytes],
        users: Mapping[str, User] | None = None,
        cache_ttl: float = 300.0,
        groups: Mapping[bytes, tuple[str, ...]] | None = None,
        known: Known | None = None,
        groups_of: Callable[[str], tuple[str, ...]] | None = None,
    ) -> None: ...
    def key_of(self, value: bytes) -> bytes | None: ...
    def proved_us(self, key: bytes) -> int: ...
    def recall(self, value: bytes) -> Account | None: ...
    def find(self, name: bytes) -> Account | None: ...
    def name_of(self, value: bytes) -> bytes | None: ...
    def compare(self, value: bytes) -> Account | None: ...
    def hash_to_verify(self, value: bytes) -> tuple[str, bytes, Account | None]: ...
    def remember(
        self, key: bytes, account: Account, at: float | None = None
    ) -> bool: ...

class AuthenticatorByFunction(Authenticator):
    def __init__(
        self,
        function: Callable[[str, str], Awaitable[bool]],
        identity: bytes,
        inline: Mapping[bytes, bytes],
        users: Mapping[str, User] | None = None,
        cache_ttl: float = 300.0,
        groups: Mapping[bytes, tuple[str, ...]] | None = None,
        known: Known | None = None,
        groups_of: Callable[[str], tuple[str, ...]] | None = None,
    ) -> None: ...
