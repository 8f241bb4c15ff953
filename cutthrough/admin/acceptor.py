"""Accepts connections to the admin listener, even without a free descriptor.

A few spare descriptors are kept open, because operators need answers exactly then. One
is closed to accept a connection, and all are closed when an answer is made that opens
files. The event loops cannot do this: asyncio waits for a second and tries again, libuv
accepts the connection and closes it.
"""

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator

# For simultaneous connections, and for the one file at a time that psutil reads
SPARE = 4
# Pause after accepting found no descriptor
PAUSE_S = 0.1
# Connections accepted in a turn; not all, because the loop has other work
BATCH = 64
# Of the loop, until a request that has come is read and its handler has begun
TURNS = 4

STARVED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

log = logging.getLogger("cutthrough.admin")


class SpareDescriptors:
    """Descriptors kept open as a reserve. Its maker closes it."""

    def __init__(self, most: int = SPARE) -> None:
        self._most = most
        self._fds: list[int] = []
        self.refill()

    def refill(self) -> bool:
        """Opens missing ones. False: the process has no descriptor for them."""
        try:
            while len(self._fds) < self._most:
                self._fds.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
        except OSError:
            return False
        return True

    def close_one(self) -> bool:
        """Closes one, so that another can be opened. False: none is left."""
        if self._fds:
            os.close(self._fds.pop())
            return True
        return False

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Closes all meanwhile, so that files can be opened; they must be closed again
        at the end."""
        while self.close_one():
            pass
        try:
            yield
        finally:
            self.refill()

    def close(self) -> None:
        self._most = 0
        while self.close_one():
            pass


class AdminAcceptor:
    """Accepts on `listener`, which the caller keeps, until `close`.

    `make` makes a protocol for each connection; `close_idle` closes idle connections
    when there are no descriptors left.
    """

    def __init__(self, listener: socket.socket,
                 make: Callable[[], asyncio.BaseProtocol],
                 close_idle: Callable[[], None]) -> None:
        self._listener = listener
        self._make = make
        self._close_idle = close_idle
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None
        self._fd = listener.fileno()
        self.spare = SpareDescriptors()
        listener.setblocking(False)
        self._loop.add_reader(self._fd, self._accept)

    def _accept(self) -> bool:
        """Are there more?"""
        for _ in range(BATCH):
            try:
                sock, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                if error.errno not in STARVED:
                    continue                # the connection is gone
                self._close_idle()
                if not self.spare.close_one():
                    self._loop.remove_reader(self._fd)
                    self._pause = self._loop.call_later(PAUSE_S, self._resume)
                    return False
                continue
            sock.setblocking(False)
            task = self._loop.create_task(self._serve(sock))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return True

    def _resume(self) -> None:
        self._pause = None
        self.spare.refill()
        self._loop.add_reader(self._fd, self._accept)

    async def _serve(self, sock: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(self._make, sock)
        except OSError as error:            # usually the peer has closed meanwhile
            sock.close()
            log.debug("cannot serve a connection: %s", error)

    def is_short(self) -> bool:
        """Can the process open no descriptors but the spare ones, or not even these?"""
        return not self.spare.refill()

    def close(self) -> None:
        """Accepts what has connected already: a close of `listener` would reset it."""
        if self._pause is None:
            self._loop.remove_reader(self._fd)
            while self._accept():
                pass
        pause, self._pause = self._pause, None
        if pause is not None:                # no descriptor for the rest
            pause.cancel()
        self.spare.close()

    async def settle(self) -> None:
        """Returns when requests that have come by accepted connections are in hand."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        for _ in range(TURNS):
            await asyncio.sleep(0)


def bind_address(address: tuple[str, int], shared: bool) -> socket.socket:
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind(address)
        # After bind, as in net.listener: an address of another program is refused, but
        # our own successor may share it
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except BaseException:
        sock.close()
        raise
    return sock
