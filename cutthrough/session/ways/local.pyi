import socket
from collections.abc import Callable, Mapping

from cutthrough.session.model.context import Context

LocalOrigin = Callable[[socket.socket], None]

def set_local_origins(
    context: Context, origins: Mapping[str, LocalOrigin] | None
) -> None: ...
