class Decision:
    allow: bool
    reason: str
    ttl: float
    limits: str
    tls: str
    def __init__(
        self, allow: bool, reason: str = "", ttl: float = 0.0, limits: str = "",
        tls: str = ""
    ) -> None: ...

class DecisionCache:
    hits: int
    def __init__(self, bound: int = 10000) -> None: ...
    def keep(
        self, user: bytes, key: bytes, decision: Decision, now_ms: int,
        fingerprints: tuple[tuple[str, str], ...] | None = None
    ) -> None: ...
    def get(
        self, user: bytes, key: bytes, now_ms: int,
        fingerprints: tuple[tuple[str, str], ...] | None = None
    ) -> Decision | None: ...
    def __len__(self) -> int: ...
