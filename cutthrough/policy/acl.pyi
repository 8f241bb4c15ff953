from collections.abc import Iterable, Mapping

from cutthrough.policy.answer import Answer, Caller
from cutthrough.policy.source import Policy, Rule

METHODS: dict[str, int]

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
        caller: Caller = ...,
        method: str = "CONNECT",
        address: str | None = None,
        opening: tuple[str, str, str] | None = None,
        path: bytes | None = None,
        for_origin: bool = False,
        own_method: str = "GET",
    ) -> Answer: ...
    def sizes(self) -> dict[str, int]: ...
