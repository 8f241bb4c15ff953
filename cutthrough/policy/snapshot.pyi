from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from cutthrough.policy.acl import Acl
from cutthrough.policy.auth import Authenticator
from cutthrough.policy.parents import Ways

class HostAddresses:
    def __init__(self, texts: Iterable[str] = ()) -> None: ...
    def set(self, texts: Iterable[str]) -> None: ...
    def __contains__(self, text: str, /) -> bool: ...

class Bounds(NamedTuple):
    address_floor: bool
    connect_ports: Iterable[int] | None
    listeners: Iterable[tuple[str, int]] = ()
    host_addresses: HostAddresses | Iterable[str] = ()
    own_networks: Iterable[str] = ()

class Judges(NamedTuple):
    acl: Acl | None = None
    hook: Any = None
    filters: Any = None
    edits: Mapping[int, tuple[Any, Any]] | None = None
    refusals: Any = None

class WaysOut(NamedTuple):
    parents: Ways | None = None
    own_sources: Mapping[bytes, int] | None = None
    origins: Mapping[str, tuple[int, int]] | None = None

class Snapshot:
    users: Authenticator
    generation: int
    address_floor: bool
    any_port: bool
    acl: Acl | None
    hook: Any
    ways: Ways | None
    filters: Any
    refusals: Any
    def __init__(
        self,
        users: Authenticator | Mapping[bytes, bytes],
        bounds: Bounds,
        *,
        judges: Judges = ...,
        ways_out: WaysOut = ...,
        senders: Iterable[str] = (),
        generation: int = 1,
    ) -> None: ...
    def port_outcome(self, is_connect: bool, port: int) -> str: ...
    def loop_outcome(self, address: str, port: int) -> str: ...
    def floor_outcome(self, address: str) -> str: ...
