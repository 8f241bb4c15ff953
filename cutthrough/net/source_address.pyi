from collections.abc import Sequence
from typing import Literal

CHOICES: dict[str, int]

class Source:
    name: str
    def __init__(
        self,
        name: str = "",
        *,
        addresses: Sequence[str] = (),
        prefix: str = "",
        choose: Literal["random", "sticky_user", "sticky_destination"] = "random",
        device: str = "",
        mark: int = -1,
        dscp: int = -1,
    ) -> None: ...
    def address_for(self, family: int, draw: int) -> str | None: ...
    def may_reach(self, family: int) -> bool: ...
    def apply(self, fd: int, family: int, draw: int) -> None: ...
