from collections.abc import Callable, Iterable

from cutthrough.policy.parents import Parent
from cutthrough.session.model.client import Client
from cutthrough.session.model.context import Context
from cutthrough.session.model.standby import Standby

class Probe(Client):
    is_over: bool
    def __init__(
        self,
        context: Context,
        parent: Parent,
        target: str,
        done: Callable[[str, int], None],
        tls: int = -1,
        server_name: str = "",
    ) -> None: ...
    def close_now(self) -> None: ...

class ServerProbe(Probe):
    def __init__(
        self,
        context: Context,
        server: Parent,
        question: bytes,
        statuses: Iterable[tuple[int, int]],
        done: Callable[[str, int], None],
    ) -> None: ...

class SetUp(Probe):
    def __init__(self, context: Context, parent: Parent, standby: Standby) -> None: ...
    def close_now(self) -> None: ...
