"""An upgrade: a new program takes over from the old one. The listening sockets go from
the old supervisor to the new one, so that no connection is refused or reset.

    old  USR2: starts the new program, with one end of a socket pair
    new  requests the sockets: TAKE
    old  sends every listening socket
    new  reads and checks its configuration; if it would serve less: REFUSED, its end
    new  starts its workers; when all are prepared, they begin to accept (start_gate);
         when all are ready: SERVING
    old  sends a socket for each of its workers, which hands its tunnels over there
    new  gives each of these to a worker of its own: see handover_plan
    old  stops accepting and drains; its sockets live on in the new program
    new  forwards an operator's query: ASK, and a List, Trace or Cut; Reopen, too,
         and Commit when a generation has come into force there
    old  ANSWER, and the answer about the connections that still drain

Before SERVING nothing changes in the old program: if the new one fails, the old one
continues to serve. What the old one serves comes in the environment, as Served.
Descriptors are sent in batches, because a message takes at most 253
(SCM_MAX_FD).
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from cutthrough.config.config import Config, ConfigError
from cutthrough.policy.source import Policy
from cutthrough.process.channel import Message, Unreadable, read_message
from cutthrough.process.environment import EARLY
from cutthrough.process.packets import receive_packet
from cutthrough.process.systemd import successor_environment

log = logging.getLogger("cutthrough")

VARIABLE = "CUTTHROUGH_SUCCEEDS"
# Set if the service manager opened the sockets: they replace `listen`
ACTIVATED = "CUTTHROUGH_ACTIVATED"
TAKE, SERVING = b"take", b"serving"
# Followed by the number of a slot; a descriptor comes with it
TUNNELS = b"tunnels"
# Followed by an encoded channel.Message
ASK, ANSWER = b"ask", b"told"
# Followed by the reason
REFUSED = b"refused"
SERVED = "CUTTHROUGH_SERVED"
MOST_BYTES = 4096
MOST_REASON = 2000
# How long the new program may take until it serves; each worker may take 30 s
START_TIMEOUT_S = 60.0
FDS_AT_ONCE = 200
# At the end of the old program; a query of its workers takes as long at most
ANSWER_TIMEOUT_S = 2.0


# To a query of the new program, with a descriptor or -1; None: it wants no answer
Answer = Callable[[Message], Awaitable[tuple[Message, int] | None]]


class Served(msgspec.Struct, frozen=True):
    """The services of a program that an upgrade must not take away."""

    listeners: tuple[str, ...]
    demonstration: bool                      # the well-known credentials are in force
    policy: bool                             # there is one

    @classmethod
    def of(cls, config: Config, policy: Policy) -> "Served":
        return cls(tuple(listener.shown for listener in config.all_listeners),
                   config.demonstration, bool(policy.source))

    def check(self, config: Config, policy: Policy) -> None:
        """Raises ConfigError if this configuration serves less.

        A file may be empty because the disk is full or the file is being written. What
        is meant to go away goes by a reload, which an upgrade may follow.
        """
        now = Served.of(config, policy)
        missing = Counter(self.listeners) - Counter(now.listeners)
        if now.demonstration and not self.demonstration:
            raise ConfigError("", "user", "no user is configured any more; the "
                              "demonstration credentials are enabled only at a start")
        if self.policy and not now.policy:
            raise ConfigError("", "policy", "none is configured any more; if that is "
                              "meant, reload first")
        if missing:
            raise ConfigError("", "listen", f"{', '.join(missing)} is not listened on "
                              "any more; if that is meant, reload first")


class Predecessor:
    """The new program's side: its view of the previous one."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._socket.settimeout(START_TIMEOUT_S)
        self.activated = os.environ.pop(ACTIVATED, "") == "1"
        self._served = os.environ.pop(SERVED, "")    # "": of a version without it
        self.drains = False                  # it drains, and answers queries
        self._fd = -1
        self._on_answer: Callable[[Predecessor, Message | None], None] | None = None

    @classmethod
    def find(cls) -> "Predecessor | None":
        """Returns the previous program, if one started this one for an upgrade."""
        text = os.environ.pop(VARIABLE, "")
        if not text.isdigit():
            return None
        sock = socket.socket(fileno=int(text))
        os.set_inheritable(sock.fileno(), False)
        return cls(sock)

    def take_listeners(self) -> list[socket.socket]:
        """Returns its listening sockets, which the caller owns. Raises OSError."""
        with contextlib.suppress(ConnectionError):      # the next read says so, too
            self._socket.send(TAKE)
        left = int.from_bytes(self._receive(4), "big")
        fds: list[int] = []
        while len(fds) < left:
            data, some = receive_packet(self._socket, 16, FDS_AT_ONCE)
            if not data:
                raise ConnectionAbortedError("the previous program has exited")
            fds += some
        return [socket.socket(fileno=fd) for fd in fds]

    def check(self, config: Config, policy: Policy) -> None:
        """Raises ConfigError if this program would serve less, and tells the other."""
        if not self._served:
            return
        try:
            msgspec.json.decode(self._served, type=Served).check(config, policy)
        except ConfigError as error:
            with contextlib.suppress(OSError):
                self._socket.send(REFUSED + str(error).encode()[:MOST_REASON])
            raise

    def _receive(self, n: int) -> bytes:
        try:
            data = self._socket.recv(n)
        except ConnectionError:
            data = b""
        if len(data) != n:
            raise ConnectionAbortedError("the previous program has exited")
        return data

    def report_serving(
            self, on_tunnels: Callable[[int, int], None] | None,
            on_answer: "Callable[[Predecessor, Message | None], None]") -> None:
        """Reports that this program serves, so that the previous one drains.

        `on_tunnels` gets the slot of each of its workers and the socket over which the
        worker's tunnels come; None: no tunnels are taken. `on_answer` gets the answers
        to queries, and None when the previous program has ended.
        """
        self._on_answer = on_answer
        try:
            self._socket.send(SERVING)
        except OSError:
            self._socket.close()            # it has ended already
            return
        self.drains = True
        self._socket.setblocking(False)
        asyncio.get_running_loop().add_reader(
            self._socket.fileno(), self._on_readable, on_tunnels)

    def _on_readable(self, on_tunnels: Callable[[int, int], None] | None) -> None:
        try:
            data, fds = receive_packet(self._socket, MOST_BYTES, 1)
        except BlockingIOError:
            return
        except OSError:
            data, fds = b"", []
        if data.startswith(TUNNELS) and fds and on_tunnels is not None:
            on_tunnels(int.from_bytes(data[len(TUNNELS):], "big"), fds.pop())
        elif data.startswith(ANSWER):
            try:
                message = read_message(data[len(ANSWER):])
            except Unreadable as error:      # it may have another version
                log.error("%s: %s", self.name, error)
            else:
                self._fd = fds.pop() if fds else -1
                self._deliver(message)
        elif not data:
            asyncio.get_running_loop().remove_reader(self._socket.fileno())
            self._socket.close()
            self.drains = False
            self._deliver(None)
        for fd in fds:
            os.close(fd)

    def _deliver(self, message: Message | None) -> None:
        if self._on_answer is not None:
            self._on_answer(self, message)

    # As inquiry queries it, like a worker

    pid = 0                                  # no worker has this one
    name = "the previous program, which is draining"

    def send(self, message: Message) -> bool:
        try:
            self._socket.send(ASK + msgspec.json.encode(message))
        except OSError:
            return False
        return True

    def take_fd(self) -> int:
        """Returns the descriptor that came with the last answer."""
        return self._fd


class Successor:
    """The old program's side: starts the new one, and calls `on_serving` or `on_failed`
    once. `listeners`: the sockets to send; `pages`: descriptors that the new program
    inherits, by the variables for their numbers. `answer` answers its queries; `served`
    is what it must not serve less than.

    Raises OSError if the new program cannot be started.
    """

    def __init__(self, listeners: list[socket.socket], activated: bool,
                 on_serving: Callable[[], None],
                 on_failed: Callable[[str], None],
                 answer: Answer,
                 pages: Mapping[str, int], served: Served) -> None:
        self._answer = answer
        self._answers: set[asyncio.Task[None]] = set()
        self._serves = False
        self._listeners = listeners
        self._packets: list[tuple[bytes, list[int]]] = []    # yet to be sent
        self._on_serving, self._on_failed = on_serving, on_failed
        self._socket, theirs = socket.socketpair(
            socket.AF_UNIX, socket.SOCK_SEQPACKET)
        environ = {**successor_environment(), VARIABLE: str(theirs.fileno()),
                   SERVED: msgspec.json.encode(served).decode()}
        inherited = [theirs.fileno()]
        for variable, page in pages.items():
            environ[variable] = str(page)
            inherited.append(page)
        if activated:
            environ[ACTIVATED] = "1"
        signal.pthread_sigmask(signal.SIG_BLOCK, EARLY)      # until it has handlers
        try:
            with theirs:
                # The same command line; the installed version may have changed
                self.process = subprocess.Popen(
                    [sys.executable, *sys.orig_argv[1:]], env=environ,
                    pass_fds=inherited)
        except BaseException:
            self._socket.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, EARLY)
        self._loop = asyncio.get_running_loop()
        self._socket.setblocking(False)
        self._loop.add_reader(self._socket.fileno(), self._on_readable)
        self._timer = self._loop.call_later(START_TIMEOUT_S, self._on_timeout)

    def _on_readable(self) -> None:
        try:
            packet = self._socket.recv(MOST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            packet = b""
        if packet == TAKE:
            fds = [listener.fileno() for listener in self._listeners]
            self._packets = [(len(fds).to_bytes(4, "big"), []), *(
                (b"fds", fds[start:start + FDS_AT_ONCE])
                for start in range(0, len(fds), FDS_AT_ONCE))]
            self._loop.add_writer(self._socket.fileno(), self._send_listeners)
        elif packet == SERVING:
            self._timer.cancel()
            self._serves = True
            self._on_serving()
        elif packet.startswith(REFUSED):
            self.close()
            self._on_failed("it would serve less than this one: "
                            + packet[len(REFUSED):].decode(errors="replace"))
        elif self._serves and packet.startswith(ASK):
            task = self._loop.create_task(self._reply(packet[len(ASK):]))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)
        elif self._serves:
            self.close()                     # it ended before this program
        else:
            self.close()
            self._on_failed("the new program ended before it was ready")

    async def _reply(self, question: bytes) -> None:
        try:
            answer = await self._answer(read_message(question))
        except ValueError as error:          # the new program may have another version
            log.error("cannot answer the new program: %s", error)
            return
        if answer is None:
            return
        message, fd = answer
        try:
            socket.send_fds(self._socket, [ANSWER + msgspec.json.encode(message)],
                            [fd] if fd >= 0 else [])
        except OSError:
            pass                             # it has ended, or does not read
        finally:
            if fd >= 0:
                os.close(fd)

    async def finish_answers(self) -> None:
        """Waits for the answers to the queries that have come: what was cut here counts
        although no worker is left."""
        if self._answers:
            await asyncio.wait(self._answers, timeout=ANSWER_TIMEOUT_S)

    def _send_listeners(self) -> None:
        """Sends as many as the socket has room for; called again when there is more."""
        try:
            while self._packets:
                data, fds = self._packets[0]
                socket.send_fds(self._socket, [data], fds)
                del self._packets[0]
        except BlockingIOError:
            return
        except OSError as error:
            self.close()
            self._on_failed("cannot send the listening sockets to the new program: "
                            f"{error.strerror}")
            return
        self._loop.remove_writer(self._socket.fileno())

    def _on_timeout(self) -> None:
        self.close()
        self.process.kill()
        self._on_failed(f"the new program was not ready within {START_TIMEOUT_S:g} s")

    def abandon(self) -> bool:
        """Ends the new program if it does not serve yet. Returns whether it did."""
        if self._timer.cancelled():
            return False
        self.close()
        self.process.terminate()
        return True

    def reload(self) -> str:
        """Has the new program reload, after it serves; returns the line to log."""
        self.process.send_signal(signal.SIGHUP)
        return f"pid {self.process.pid} serves; the reload was passed on to it"

    def send_giver(self, slot: int, taker: socket.socket) -> None:
        """Sends the new program the socket over which the worker on `slot` gives its
        tunnels, and closes our copy. If it takes none, the giver finds the socket
        closed."""
        with taker, contextlib.suppress(OSError):
            socket.send_fds(self._socket, [TUNNELS + slot.to_bytes(4, "big")],
                            [taker.fileno()])

    def _stop_waiting(self) -> None:
        self._timer.cancel()
        self._loop.remove_reader(self._socket.fileno())
        self._loop.remove_writer(self._socket.fileno())

    def close(self) -> None:
        """Closes the socket to the new program, which goes on by itself."""
        if self._socket.fileno() >= 0:
            self._stop_waiting()
            self._socket.close()
