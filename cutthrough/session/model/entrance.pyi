from collections.abc import Collection
from typing import NamedTuple

class Admission(NamedTuple):
    needs_user: bool = True
    anonymous_from: Collection[str] = ()
    user: str = ""

class Entrance:
    def __init__(
        self,
        protocols: Collection[str] = ("http",),
        *,
        udp: bool = False,
        admission: Admission = ...,
        transparent: str = "off",
        senders: Collection[str] = (),
        believed: Collection[str] = (),
        host_strict: bool = False,
    ) -> None: ...
