"""What the supervisor and a worker say to each other, and the wire between them.

One SOCK_SEQPACKET pair for each worker: a message is one packet, whole or not at all,
and the end of either process is an end of file at the other. The configuration, secrets
included, goes this way and never by argument or environment, where others can read it.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from cutthrough.config import Config

# The longest is Hello: 1 KB, and at most 100 KB where every list and text is as long as
# it may be. A packet also has to fit net.core.wmem_default (208 KiB).
MESSAGE_BYTES = 128 * 1024


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message to a worker: what it is to be. Numbers are descriptors."""

    config: Config
    slot: int
    listeners: tuple[int, ...]
    counters: int
    page_bytes: int


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From a worker: it accepts connections; `loop` names its event loop."""

    loop: str


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Accept no more, let what is open run for so many seconds, and exit."""

    timeout: float


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Exit now."""


class Reopen(msgspec.Struct, frozen=True, tag="reopen"):
    """Open the access log again: it was renamed."""


Message = Hello | Ready | Drain | Stop | Reopen


class Channel:
    """One end of the pair; owns its socket. An end of file is told once, by None."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._decode: Any = msgspec.json.Decoder(Message).decode
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def pair(cls) -> "tuple[Channel, socket.socket]":
        """Returns this side's channel and the other side's socket, to be handed on."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def send(self, message: Message) -> bool:
        """Sends without waiting; False where the other side is gone, or reads not."""
        try:
            self._socket.send(msgspec.json.encode(message), socket.MSG_DONTWAIT)
        except OSError:
            return False
        return True

    def receive(self) -> Message | None:
        """Returns the next message, or None at the end of file.

        Blocks until `attach`, and then raises BlockingIOError where nothing is there.
        Raises msgspec.DecodeError for what is no message of ours.
        """
        try:
            packet = self._socket.recv(MESSAGE_BYTES)
        except ConnectionResetError:         # it died with our messages unread
            return None
        return self._decode(packet) if packet else None

    def attach(self, on_message: Callable[[Message | None], None]) -> None:
        """Calls `on_message` in the running loop, at the end of file with None."""
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket.fileno(), self._on_readable, on_message)

    def _on_readable(self, on_message: Callable[[Message | None], None]) -> None:
        try:
            message = self.receive()
        except BlockingIOError:
            return
        if message is None:
            self._detach()
        on_message(message)

    def _detach(self) -> None:
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop = None

    def close(self) -> None:
        self._detach()
        self._socket.close()
