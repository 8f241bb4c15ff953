"""The channel between the supervisor and a worker, and its messages.

Each worker has one SOCK_SEQPACKET pair: a message is one packet, whole or not at all,
and the end of either process is an end of file at the other. A descriptor may come with
a message; the receiver owns it.
"""

import asyncio
import errno
import logging
import os
import select
import socket
from collections.abc import Callable, Sequence

import msgspec

from cutthrough.process.breakpoints import Chosen
from cutthrough.process.packets import receive_packet, send_packet
from cutthrough.process.selector import Selector

# Messages are small: large data travels as a memory descriptor with one. The longest is
# a Hello, if a few workers have taken over the sockets of many.
MESSAGE_BYTES = 65536
# SCM_MAX_FD of unix(7)
MOST_FDS = 253
AGAIN_S = 0.1       # between reads of a message for which there is no memory

log = logging.getLogger("cutthrough")


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """The first message to a worker: its parameters. Integers are descriptors, except
    `slot`, `workers`, `numbers`, `page` and `holder`. If they come with the message,
    they have other numbers here: `renumbered` has those."""

    slot: int
    workers: int                             # how many slots there are
    generation: int
    listeners: tuple[int, ...]
    numbers: tuple[int, ...]                 # of each: its number in all_listeners
    counters: int
    limits: int
    known: int
    tickets: int
    checks: int
    rings: int                               # of captures; of each page, one ring
    wake: int                                # the pipe to the writer of captures
    page: int                                # number of its counters page
    holder: int                              # its number on the page of limits

    @property
    def descriptors(self) -> tuple[int, ...]:
        return (*(getattr(self, name) for name in _SINGLE), *self.listeners)

    def renumbered(self, fds: Sequence[int]) -> "Hello":
        """`fds`: what the descriptors are here, in the order of `descriptors`. Raises
        OSError if some did not come: this process had no room for them."""
        if len(fds) != len(self.descriptors):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return msgspec.structs.replace(
            self, **dict(zip(_SINGLE, fds, strict=False)),
            listeners=tuple(fds[len(_SINGLE):]))


# The fields of a Hello that are one descriptor each
_SINGLE = ("generation", "counters", "limits", "known", "tickets", "checks", "rings",
           "wake")


class Prepare(msgspec.Struct, frozen=True, tag="prepare"):
    """Make this generation's parts; its memory comes with the message. The answer is
    Prepared, and nothing changes before Commit."""

    number: int


class Prepared(msgspec.Struct, frozen=True, tag="prepared"):
    """From a worker: this generation can be committed; or why not. `is_lost`: the
    worker has not got it, which says nothing about the generation. A new worker says so
    of its first generation."""

    number: int
    error: str = ""
    is_lost: bool = False


class Commit(msgspec.Struct, frozen=True, tag="commit"):
    """Put the prepared generation in force; the answer is Swapped. A new worker begins
    to accept connections; its answer is Ready."""

    number: int


class Discard(msgspec.Struct, frozen=True, tag="discard"):
    """Forget the prepared generation: it is refused."""

    number: int


class Swapped(msgspec.Struct, frozen=True, tag="swapped"):
    """From a worker: this generation is in force, or could not be applied."""

    number: int
    error: str = ""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """From a worker: it accepts connections; `loop` names its event loop."""

    loop: str


class Signalled(msgspec.Struct, frozen=True, tag="signalled"):
    """From a worker: a signal asks it to end. It accepts connections until the Drain
    that follows when another worker has its place."""


class Drain(msgspec.Struct, frozen=True, tag="drain"):
    """Stop accepting, let open connections run for `timeout` seconds, and exit."""

    timeout: float


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Exit now."""


class Reopen(msgspec.Struct, frozen=True, tag="reopen"):
    """Open the access log again: it was renamed."""


class List(msgspec.Struct, frozen=True, tag="list"):
    """List the connections that match `selector`; the answer is Listed."""

    query: int
    selector: Selector


class Trace(msgspec.Struct, frozen=True, tag="trace"):
    """Report the last events of the connection with this id; the answer is Listed, with
    one object or none."""

    query: int
    id: str


class Listed(msgspec.Struct, frozen=True, tag="listed"):
    """From a worker: the answer, a JSON array of objects, comes as memory."""

    query: int


class ListOpen(msgspec.Struct, frozen=True, tag="list_open"):
    """List captured exchanges that have not ended, or the one with this id; the answer
    is Listed: each an id, and in base64 the END that it would have now."""

    query: int
    id: str = ""


class Cut(msgspec.Struct, frozen=True, tag="cut"):
    """Close the connections that match `selector`, now; the answer is CutReport."""

    query: int
    selector: Selector


class CutReport(msgspec.Struct, frozen=True, tag="was_cut"):
    """From a worker: the number of closed connections. `moves`: 2 if tunnels were in
    transit to another worker meanwhile, which no worker can examine; 1 if some may be
    soon; else 0."""

    query: int
    count: int
    moves: int = 0


class Watch(msgspec.Struct, frozen=True, tag="watch"):
    """Write each ending as a line of JSON into the pipe that comes with this message;
    if `on` is false, stop doing so."""

    on: bool


class Arm(msgspec.Struct, frozen=True, tag="arm"):
    """Heed breakpoints of rules for `seconds`; 0: not any more. The answer is Decided,
    if `query` is not 0."""

    query: int
    seconds: float
    chosen: Chosen = Chosen()


class PauseCapture(msgspec.Struct, frozen=True, tag="pause_capture"):
    """Capture no request that begins from now on, or capture again. The answer is
    Decided, if `query` is not 0."""

    query: int
    paused: bool


class SetLogLevel(msgspec.Struct, frozen=True, tag="set_log_level"):
    """Log messages of this level and above, of errorlog.LEVELS. The answer is Decided,
    if `query` is not 0."""

    query: int
    level: str


class ListHeld(msgspec.Struct, frozen=True, tag="list_held"):
    """List the held messages, or the one with this number and its body; the answer
    is Listed."""

    query: int
    number: int = 0


class Decide(msgspec.Struct, frozen=True, tag="decide"):
    """Carry out the process.breakpoints.Decision in the memory that comes with this
    message, about the one held by this number; the answer is Decided."""

    query: int
    number: int


class Decided(msgspec.Struct, frozen=True, tag="decided"):
    """From a worker: it was carried out; `gone`: nothing is held by this number;
    `error`: it cannot be carried out, and still waits."""

    query: int
    gone: bool = False
    error: str = ""


class ListReplays(msgspec.Struct, frozen=True, tag="list_replays"):
    """List the misses of recordings; the answer is Listed."""

    query: int


class Settle(msgspec.Struct, frozen=True, tag="settle"):
    """Write the access log's lines, and give recordings to the writer;
    the answer is Decided."""

    query: int


class Look(msgspec.Struct, frozen=True, tag="look"):
    """Look at the mode of recordings and its session now; the answer is Decided, when
    they are in force."""

    query: int


class Give(msgspec.Struct, frozen=True, tag="give"):
    """Give your tunnels away over the socket that comes with this message. The taker is
    `holder` on the page of limits; -1: it is a worker of another program, which has its
    own page."""

    holder: int


class HandoverReport(msgspec.Struct, frozen=True):
    """From a worker: what became of its Give or its Take."""


class TunnelsGiven(HandoverReport, frozen=True, tag="gave"):
    """From a worker: the number of tunnels given away, and of those kept."""

    given: int
    stayed: int


class Released(HandoverReport, frozen=True, tag="released"):
    """From a worker: it gives `holder` no more tunnels, and takes none back."""

    holder: int


class Take(msgspec.Struct, frozen=True, tag="take"):
    """Take the tunnels that come over the socket with this message."""


class TunnelsTaken(HandoverReport, frozen=True, tag="took"):
    """From a worker: the number of tunnels taken, and how long their bytes were not
    moved: the 99.9th percentile and the maximum."""

    count: int
    most_us: int
    longest_us: int


Message = (Hello | Ready | Signalled | Drain | Stop | Reopen
           | Prepare | Prepared | Commit | Discard | Swapped
           | List | Trace | Listed | ListOpen | Cut | CutReport | Watch | Arm
           | PauseCapture | SetLogLevel | ListHeld | Decide | Decided | ListReplays
           | Settle | Look | Give | TunnelsGiven | Released | Take | TunnelsTaken)


class Unreadable(ValueError):
    """A packet that is not a Message, with the reason."""


_decode: Callable[[bytes], Message] = msgspec.json.Decoder(Message).decode


def read_message(packet: bytes) -> Message:
    """Raises Unreadable with the position of the error."""
    try:
        return _decode(packet)
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"dropped a message of {len(packet)} bytes that cannot be "
                         f"read: {error}") from None


class Channel:
    """One end of the pair; owns its socket. Reports an end of file once, as None."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fds: list[int] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._on_message: Callable[[Message | None], None] | None = None
        self._again: asyncio.TimerHandle | None = None      # until then nothing is read
        self._was_short = False              # the last read found no memory

    @classmethod
    def pair(cls) -> "tuple[Channel, socket.socket]":
        """Returns this side's channel, and the socket to pass to the other side."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(ours), theirs

    def send(self, message: Message, fds: Sequence[int] = ()) -> bool:
        """Sends without waiting. False: the message is lost, usually because the other
        side does not read and the socket is full. If the other side is gone, the result
        is True, and `receive` returns the end of file."""
        try:
            send_packet(self._socket, msgspec.json.encode(message), fds)
        except ConnectionError:
            pass
        except OSError:
            return False
        return True

    def receive(self) -> Message | None:
        """Returns the next message, or None at the end of file.

        Before `attach` it blocks; after it, it raises BlockingIOError if there is no
        message. Raises Unreadable for a packet that is not a message, whose descriptors
        it closes. A message's descriptor is kept for `take_fd`.
        """
        try:
            packet, fds = receive_packet(self._socket, MESSAGE_BYTES, MOST_FDS)
        except ConnectionResetError:         # the peer died with messages unread
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
        """Returns the descriptor of the message just received; the caller owns it.

        Raises OSError if none came: this process had no room for it (recvmsg(2),
        MSG_CTRUNC).
        """
        if not self._fds:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return self._fds.pop(0)

    def take_fds(self) -> list[int]:
        """Returns all descriptors that came, and were not taken; the caller owns
        them."""
        fds, self._fds = self._fds, []
        return fds

    @property
    def has_message(self) -> bool:
        """Would `receive` return at once?"""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(0))

    def attach(self, on_message: Callable[[Message | None], None]) -> None:
        """Calls `on_message` in the running loop; with None at the end of file."""
        self._socket.setblocking(False)
        self._on_message = on_message
        self._loop = asyncio.get_running_loop()
        self._watch()

    def _watch(self) -> None:
        self._again = None
        assert self._loop is not None
        self._loop.add_reader(self._socket.fileno(), self._on_readable)

    def _on_readable(self) -> None:
        assert self._on_message is not None
        try:
            message = self.receive()
        except BlockingIOError:
            return
        except (OSError, MemoryError) as error:
            self._pause(error)
            return
        except Unreadable as error:          # its sender has a time limit for an answer
            log.error("%s", error)
            return
        self._was_short = False
        if message is None:
            self._detach()
        self._on_message(message)

    def _pause(self, error: BaseException) -> None:
        """The message waits in the socket."""
        assert self._loop is not None
        if not self._was_short:
            log.error("a message cannot be read yet: %s", error or "no memory")
        self._was_short = True
        self._loop.remove_reader(self._socket.fileno())
        self._again = self._loop.call_later(AGAIN_S, self._watch)

    def read_rest(self) -> None:
        """Delivers what the other side sent before it ended: its end may be noticed
        before its last messages are."""
        while self._loop is not None and self._again is None and self.has_message:
            try:
                self._on_readable()
            except Exception as error:       # as the loop does
                log.error("a message was not handled", exc_info=error)

    def _detach(self) -> None:
        if self._again is not None:
            self._again.cancel()
            self._again = None
        if self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._loop = None

    def close(self) -> None:
        self._detach()
        while self._fds:
            os.close(self._fds.pop())
        self._socket.close()
