from collections.abc import Iterable, Mapping
from typing import NamedTuple

from cutthrough.policy.source import Policy, Rule

METHODS: dict[str, int]

class Look(NamedTuple):
    rule: int
    mismatch: str

class Answer(NamedTuple):
    outcome: str
    rule: int
    report: bool
    cut: bool
    opens_floor: bool
    maybe: bool
    limits: str
    source: str
    route: str
    looked: tuple[Look, ...]

class Acl:
    rules: tuple[Rule, ...]
    limits: tuple[str, ...]
    routes: tuple[str, ...]
    policy: Policy
    def __init__(
        self, policy: Policy, sources: Mapping[str, int] | None = None
    ) -> None: ...
    def subjects_of(self, user: bytes | str, groups: Iterable[str] = ()) -> bytes: ...
    def ask(
        self,
        *,
        host: str,
        port: int,
        user: str = "",
        groups: Iterable[str] = (),
        client: str = "127.0.0.1",
        method: str = "CONNECT",
        address: str | None = None,
    ) -> Answer: ...
    def sizes(self) -> dict[str, int]: ...
