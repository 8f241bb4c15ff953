from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cutthrough.config.origins import Origin as Row
from cutthrough.config.parents import Group
from cutthrough.config.parents import Parent as Source
from cutthrough.policy.origins import Origin

DIRECT: str
LOSSES: tuple[str, ...]
LOSSES_OF_SERVERS: dict[str, str]

class Standing:
    number: int
    name: bytes
    is_down: bool
    in_hand: int
    failures: int
    setup_us: int
    begun: int
    used: int
    used_us: int
    def __init__(self, number: int, name: bytes) -> None: ...
    def note_check(self, ok: bool, took_us: int, now_ms: int) -> None: ...
    def forget_check(self) -> None: ...
    def describe(self, now_ms: int) -> dict[str, Any]: ...

class Parent:
    name: str
    standing: Standing | None
    via: Parent | None
    depth: int
    resolves: bool
    origin: Origin | None
    standby: int
    def __init__(
        self,
        source: Source,
        via: Parent | None,
        standing: Standing | None,
        tls: int = -1,
    ) -> None: ...

class Way:
    name: str
    origin: Origin | None
    members: tuple[Parent, ...]
    n: int
    def __init__(
        self,
        name: str,
        members: Iterable[Parent],
        choose: str = "failover",
        weights: Iterable[int] = (),
        tolerance: float = 0.0,
    ) -> None: ...
    def choose(self, key: bytes | None = None) -> str | None: ...
    def load(self, i: int) -> float: ...
    def score(self, i: int, key: bytes) -> float: ...

class Registry:
    standings: list[Standing | None]
    def find(self, name: str, identity: str) -> Standing: ...
    def shrink(self, count: int) -> None: ...

class Routes(NamedTuple):
    default: str
    by_rule: Sequence[str] = ()
    origin: str = ""

class Ways:
    default: Way | None
    origin: Way | None
    has_origins: bool
    pass_credentials: bool
    by_name: Mapping[str, Way | None]
    parents: tuple[Parent, ...]
    def __init__(
        self,
        parents: Mapping[str, Source],
        groups: Mapping[str, Group],
        routes: Routes,
        registry: Registry,
        tls: Mapping[str, tuple[int, bytes]] | None = None,
        origins: Sequence[Row] = (),
    ) -> None: ...
