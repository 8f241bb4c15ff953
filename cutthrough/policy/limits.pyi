from cutthrough.policy.ledger import Ledger
from cutthrough.policy.source import Policy

class Limiter:
    ledger: Ledger
    def __init__(
        self,
        ledger: Ledger | None = None,
        policy: Policy | None = None,
        *,
        most: int = 0,
        most_of_client: int = 0,
    ) -> None: ...

class Holder:
    def __init__(self, limiter: Limiter) -> None: ...
    def enter(self, packed: bytes) -> str: ...
    def ask(
        self,
        user: bytes,
        is_tunnel: bool = False,
        limits: str | None = None,
        now: float = 1.0,
    ) -> tuple[str, int]: ...
    def ask_again(
        self,
        user: bytes,
        is_tunnel: bool = False,
        limits: str | None = None,
        now: float = 1.0,
    ) -> tuple[str, int]: ...
    def move(self, n: int, now: float = 1.0) -> int | None: ...
    def wait(self) -> float: ...
    def end(self, now: float = 1.0) -> None: ...
    def close(self, now: float = 1.0) -> None: ...
