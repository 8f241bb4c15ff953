import socket

from cutthrough.net.poller import Poller

class Sink: ...

class Acceptor:
    accepted: int
    failed: int
    paused: bool
    def __init__(self, poller: Poller, listener: socket.socket, sink: Sink) -> None: ...
    def stop(self) -> None: ...
