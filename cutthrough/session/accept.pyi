from typing import NamedTuple

from cutthrough.net.acceptor import Sink
from cutthrough.session.model.context import Context
from cutthrough.session.model.entrance import Entrance

class SocketFacts(NamedTuple):
    path: str = ""
    proxy_protocol: bool = False
    keeps_syn: bool = False

class ConnectionSink(Sink):
    transport: int
    def __init__(
        self,
        context: Context,
        listener: int,
        *,
        facts: SocketFacts = ...,
        pac: int = 0,
        plain_too: bool = False,
        entrance: Entrance | None = None,
    ) -> None: ...
    def set_tls(self, tls: int) -> None: ...

def close_idle(context: Context, grace: float = 0.0) -> int: ...
def close_all(context: Context, label: str) -> int: ...
