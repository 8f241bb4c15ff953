"""What the supervisor and a worker say to each other, and the wire between them.

One SOCK_SEQPACKET pair for each worker: a message is one packet, whole or not at all,
and the end of either process is an end of file at the other. A descriptor may come with
a message, and is then the receiver's.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cutthrough.process.selector import Selector

# Small messages: what is large travels as a descriptor beside one. The longest is a
# Hello where a few workers have taken over the sockets of many.
MESSAGE_BYTES = 65536
MOST_FDS = 1

log = logging.getLogger("cutthrough")


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message to a worker: what it is to be. Numbers are descriptors."""

    slot: int
    generation: int
    listeners: tuple[int, ...]
    counters: int
    limits: int
    known: int
    page: int                                # number of its counters page
    holder: int                              # its number on the limits' page


class Swap(msgspec.Struct, frozen=True, tag="swap"):
    """Take over this generation, whose memory comes with the message."""

    number: int


class Swapped(msgspec.Struct, frozen=True, tag="swapped"):
    """From a worker: this generation is in force, or was not to be had."""

    number: int
    error: str = ""


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


class List(msgspec.Struct, frozen=True, tag="list"):
    """Tell of the connections that `selector` means; the answer is Listed."""

    query: int
    selector: Selector


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Tell what the connection with this id did last; the answer is Listed, with one
    object or none."""

    query: int
    id: str


class Listed(msgspec.Struct, frozen=True, tag="listed"):
    """From a worker; a JSON array of objects comes with it as memory."""

    query: int


class Cut(msgspec.Struct, frozen=True, tag="cut"):
    """End the connections that `selector` means, now; the answer is WasCut."""

    query: int
    selector: Selector


class WasCut(msgspec.Struct, frozen=True, tag="was_cut"):
    """From a worker: how many they were. `moves`: 2 where tunnels were on their way to
    another one meanwhile, where nobody can look at them; 1 where some may be soon."""

    query: int
    count: int
    moves: int = 0


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """Write each ending as a line of JSON into the pipe that comes with this message;
    or, where `on` is false, no longer."""

    on: bool


class Give(msgspec.Struct, frozen=True, tag="give"):
    """Give your tunnels away over the socket that comes with this message. The taker is
    `holder` on the page of limits; -1: it is another program's and has another page."""

    holder: int


class Gave(msgspec.Struct, frozen=True, tag="gave"):
    """From a worker: so many tunnels are another's now, so many its own still."""

    given: int
    stayed: int


class Take(msgspec.Struct, frozen=True, tag="take"):
    """Take the tunnels that come over the socket with this message."""


class Took(msgspec.Struct, frozen=True, tag="took"):
    """From a worker: so many tunnels came. For so long nobody moved their bytes: 999 of
    1000 of them, and the last one."""

    count: int
    most_us: int
    longest_us: int


Message = (Hello | Ready | Drain | Stop | Reopen | Swap | Swapped
           | List | Trace | Listed | Cut | WasCut | Watch | Give | Gave | Take | Took)


class Unreadable(ValueError):
    """What is no message of ours, with its reason."""


_decode: Callable[[bytes], Message] = msgspec.json.Decoder(Message).decode


def read_message(packet: bytes) -> Message:
    """Raises Unreadable with the place of what is wrong."""
    try:
        return _decode(packet)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"dropped a message of {len(packet)} bytes that cannot be "
                         f"read: {error}") from None


def in_memory(found: list[dict[str, Any]]) -> int:
    """Returns a descriptor of memory that holds these as JSON; the caller's."""
    fd = os.memfd_create("cutthrough-connections", os.MFD_CLOEXEC)
    left = msgspec.json.encode(found)
    while left:
        left = left[os.write(fd, left):]
    return fd


class Channel:
    """One end of the pair; owns its socket. An end of file is told once, by None."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fds: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def pair(cls) -> "tuple[Channel, socket.socket]":
        """Returns this side's channel and the other side's socket, to be handed on."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def send(self, message: Message, fds: Sequence[int] = ()) -> bool:
        """Sends without waiting; False where it is lost, as when the other side has not
        read for long. That this is gone is told by the end of file."""
        try:
            socket.send_fds(self._socket, [msgspec.json.encode(message)], fds,
                            socket.MSG_DONTWAIT)
        except ConnectionError:
            pass
        except OSError:
            return False
        return True

    def receive(self) -> Message | None:
        """Returns the next message, or None at the end of file.

        Blocks until `attach`, and then raises BlockingIOError where nothing is there.
        Raises Unreadable for what is no message of ours, whose descriptor is closed. A
        descriptor that came with a message is kept for `take_fd`.
        """
        try:
            packet, fds, _, _ = socket.recv_fds(
                self._socket, MESSAGE_BYTES, MOST_FDS, socket.MSG_CMSG_CLOEXEC)
        except ConnectionResetError:         # it died with our messages unread
            return None
        if not packet:
            return None
        try:
            message = read_message(packet)
        except Unreadable:
            for fd in fds:
                os.close(fd)
            raise
        self._fds += fds
        return message

    def take_fd(self) -> int:
        """Returns the descriptor of the message just received; the caller's now.

        Raises OSError where none came: we had no room for it (recvmsg(2), MSG_CTRUNC).
        """
        if not self._fds:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._fds.pop(0)

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
        except Unreadable as error:          # its sender hears nothing, which it bounds
            log.error("%s", error)
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
        while self._fds:
            os.close(self._fds.pop())
        self._socket.close()
