"""A socket; its bytes travel in a protocol of their own, with an end of its own."""

import contextlib
import socket
from abc import ABC, abstractmethod


class WrappedSocket(ABC):
    """As a connected socket, as far as `Stream` uses one.

    A subclass has send, sendall and recv, and `_end`, which sends the protocol's end
    once and sets `_ended`.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._ended = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._sock, name)

    @abstractmethod
    def _end(self) -> None: ...

    def setsockopt(self, level: int, name: int, value: int | bytes) -> None:
        self._sock.setsockopt(level, name, value)
        if name == socket.SO_LINGER:
            self._ended = True                          # a reset, and nothing before it

    def shutdown(self, how: int) -> None:
        if how != socket.SHUT_RD:
            self._end()
        self._sock.shutdown(how)

    def close(self) -> None:
        ended = self._ended
        if not ended:
            self._end()
        if not ended and not isinstance(self._sock, WrappedSocket):
            # The peer's end may wait to be read; a close would make a reset of it
            with contextlib.suppress(OSError):
                self._sock.setblocking(False)
                while self._sock.recv(65536):
                    pass
        self._sock.close()
