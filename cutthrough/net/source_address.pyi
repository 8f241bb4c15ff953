from collections.abc import Sequence
from typing import Literal

Choose = Literal["random", "sticky_user", "sticky_destination"]

CHOICES: dict[str, int]

class Source:
    name: str
    def __init__(
        self,
        name: str = "",
        *,
        addresses: Sequence[str] = (),
        prefix: str = "",
        choose: Choose = "random",
        device: str = "",
        mark: int = -1,
        dscp: int = -1,
    ) -> None: ...
    def address_for(self, family: int, draw: int) -> str | None: ...
    def apply(self, fd: int, family: int, draw: int) -> None: ...
