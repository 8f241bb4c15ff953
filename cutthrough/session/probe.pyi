from collections.abc import Callable

from cutthrough.policy.parents import Parent
from cutthrough.session.client import Client
from cutthrough.session.context import Context
from cutthrough.session.standby import Standby

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

class SetUp(Probe):
    def __init__(self, context: Context, parent: Parent, standby: Standby) -> None: ...
    def close_now(self) -> None: ...
