"""The listening sockets of all slots, through changes of address and worker count.

A socket is never closed while its address stays configured: the kernel would reset the
connections queued on it, and no client is to notice a reload. If the number of workers
decreases, the remaining ones take over the sockets of the others.

The file of a unix socket is removed together with its socket, but only by the program
that serves: until a new program serves, the files are the previous one's.
"""

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterable
from typing import NamedTuple

from cutthrough.config.listeners import Listener
from cutthrough.net.listener import (
    BACKLOG,
    Address,
    bound_address,
    is_transparent,
    join,
    listen,
    path_of,
    saves_syn,
    set_saved_syn,
    set_transparent,
)
from cutthrough.net.options import read_bound
from cutthrough.net.unix_listener import inode_of, remove, set_access

# A configured address, and its number among equal ones: two may have port 0
Key = tuple[Address, int]


class Opened:
    """The sockets of a generation by listener, in force or not. `undo` closes the new
    sockets, and restores the options of the others."""

    def __init__(self, groups: dict[Key, list[socket.socket]],
                 undo: contextlib.ExitStack | None = None) -> None:
        self.groups = groups
        self.undo = undo or contextlib.ExitStack()

    def of_slot(self, index: int, slots: int) -> tuple[tuple[int, ...], ...]:
        """Returns the sockets of one slot of `slots`: the numbers of their listeners,
        and their descriptors. Each socket belongs to a slot.

        If an address has fewer sockets than there are slots, slots share them.
        """
        mine = [(number, sock.fileno())
                for number, group in enumerate(self.groups.values())
                for sock in group[index::slots] or [group[index % len(group)]]]
        return tuple(zip(*mine, strict=True))

    def pause(self, index: int, slots: int) -> None:
        """No worker accepts on the slot's own sockets for some time. If they went on
        listening, the kernel would give them callers, and these would wait. shutdown(2)
        takes the sockets out of the group of their address, and resets connections in
        their queues; the address stays bound. When the slot has its next worker, it
        lets them listen again.

        If a socket does not listen, it stays as it is, because shutdown(2) would fail
        and mark it: each connection accepted later would begin with its end."""
        for group in self.groups.values():
            for sock in group[index::slots] if len(group) >= slots else ():
                if sock.family != socket.AF_UNIX and sock.getsockopt(
                        socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    sock.shutdown(socket.SHUT_RD)

    def withdraw(self) -> None:
        """The generation is refused."""
        self.undo.close()


class Listeners:
    """Owns every listening socket; `close` closes them.

    `adopted`: sockets that systemd or the previous program opened; they belong to this
    object now. `prepare` keeps the sockets of configured addresses, and `commit` closes
    the others.
    """

    def __init__(self, adopted: Iterable[socket.socket] = (),
                 activated: bool = False) -> None:
        # The service manager opened the sockets, for this program or a previous one
        self.activated = activated
        self._adopted = list(adopted)
        self._groups: dict[Key, list[socket.socket]] = {}
        self._dropped: list[socket.socket] = []
        # The inodes of files that this program removes; and of files that it has taken
        # over, because the previous program would still need them if this one fails
        self._files: dict[str, int] = {}
        self._inherited: dict[str, int] = {}
        # Before this program serves: restores the options of adopted sockets
        self._serves = False
        self._undo = contextlib.ExitStack()

    def prepare(self, listeners: Iterable[Listener], slots: int) -> "Opened":
        """Opens the missing sockets, so that each slot has one for each listener.

        `commit` puts the result in force, or `withdraw` undoes it. Raises OSError with
        the address as its file name, and then nothing has changed.
        """
        listeners = list(listeners)
        wanted = [listener.address for listener in listeners]
        adopted = group_adopted([*self._adopted, *self._dropped], wanted)
        with contextlib.ExitStack() as undo:
            groups = {}
            for i, listener in enumerate(listeners):
                address = listener.address
                key = (address, wanted[:i].count(address))
                group = self._groups.get(key) or adopted.get(key, [])
                try:
                    more = open_missing(listener, group, slots, undo)
                    undo.callback(remove_files, files_of(more))
                    for sock in more:
                        undo.enter_context(sock)
                    for sock in group:
                        change_backlog(sock, self.backlog_of(listener), undo)
                    for sock in (*group, *more):
                        change_transparent(
                            sock, listener.transparent == "tproxy", undo)
                        change_saved_syn(sock, listener.tcp_fingerprint, undo)
                except OSError as error:
                    error.filename = listener.shown
                    raise
                groups[key] = group + more
            return Opened(groups, undo.pop_all())

    def commit(self, opened: "Opened") -> None:
        """`close_dropped` closes the sockets of addresses no longer given, unless a
        later `prepare` gives their address again.

        Until this program serves, `close` undoes it, because adopted sockets are still
        the previous program's: if this one fails, that one goes on.
        """
        kept = opened.undo.pop_all()
        if not self._serves:
            self._undo.push(kept)
        sockets = [sock for group in opened.groups.values() for sock in group]
        before = [*self._adopted, *self._dropped, *self.all()]
        self._files |= files_of(sock for sock in sockets if sock not in before)
        self._inherited |= files_of(self._adopted)
        for sock in self._adopted:
            if sock not in sockets:
                sock.close()
        self._adopted.clear()
        self._dropped = [sock for sock in (*self._dropped, *self.all())
                         if sock not in sockets]
        self._groups = opened.groups

    def of_slot(self, index: int, slots: int) -> tuple[tuple[int, ...], ...]:
        """See Opened.of_slot: of those in force."""
        return Opened(self._groups).of_slot(index, slots)

    def pause(self, index: int, slots: int) -> None:
        """See Opened.pause."""
        Opened(self._groups).pause(index, slots)

    def lend(self, listeners: Iterable[Listener]) -> "Lent":
        """Returns the sockets for a new program. `listeners`: those in force."""
        return Lent(self.all(), {listener.address: self.backlog_of(listener)
                                 for listener in listeners})

    def backlog_of(self, listener: Listener) -> int:
        """0: the service manager's socket keeps its own."""
        return listener.backlog or (0 if self.activated else BACKLOG)

    def all(self) -> list[socket.socket]:
        return [sock for group in self._groups.values() for sock in group]

    def bound(self) -> list[Address]:
        """Returns each address with its real port."""
        return [bound_address(group[0]) for group in self._groups.values()]

    def on_serving(self) -> None:
        """This program serves: files that it has taken over are its own from now on.
        Those of the service manager's sockets are not."""
        self._serves = True
        self._undo.pop_all()
        if not self.activated:
            self._files |= self._inherited
        self._inherited.clear()
        self.close_dropped()

    def close_dropped(self) -> None:
        """Closes the sockets of removed addresses; call it when no worker has them."""
        for sock in self._dropped:
            sock.close()
        self._dropped.clear()
        for path in self._files.keys() - files_of(self.all()).keys():
            remove(path, self._files.pop(path))

    def close(self, handed_on: bool = False) -> None:
        """An open socket would still queue connections. `handed_on`: a new program
        serves, and the files are its."""
        self._undo.close()
        if handed_on:
            self._files.clear()
        socks = self.all()
        self._groups.clear()
        for sock in socks:
            sock.close()
        self.close_dropped()


class Lent:
    """The options of sockets, and the access to their files, before a new program gets
    them. It changes them by its own configuration, and restores them if it fails. If it
    is killed, only the program that lent the sockets can restore them."""

    def __init__(self, sockets: list[socket.socket], backlogs: dict[Address, int]
                 ) -> None:
        """`backlogs`: by address; a unix socket's cannot be read."""
        self._options = [(sock, options_of(sock, backlogs)) for sock in sockets]
        self._files: dict[str, os.stat_result] = {}
        for path in files_of(sockets):
            with contextlib.suppress(OSError):       # somebody has removed it
                self._files[path] = os.lstat(path)

    def give_back(self) -> None:
        unused = contextlib.ExitStack()
        for sock, before in self._options:
            with contextlib.suppress(OSError):
                change_backlog(sock, before.backlog, unused)
                change_transparent(sock, before.transparent, unused)
                change_saved_syn(sock, before.saved_syn, unused)
        unused.pop_all()
        for path, access in self._files.items():
            restore_access(path, access)


class Options(NamedTuple):
    """Options of a listening socket. `backlog`: 0 if it is not known."""

    backlog: int
    transparent: bool
    saved_syn: bool


def options_of(sock: socket.socket, backlogs: dict[Address, int]) -> Options:
    if sock.family == socket.AF_UNIX:
        return Options(backlogs.get(bound_address(sock), 0), False, False)
    listens = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    return Options(read_bound(sock) if listens else 0, is_transparent(sock),
                   saves_syn(sock))


def group_adopted(sockets: list[socket.socket],
                  wanted: list[Address]) -> dict[Key, list[socket.socket]]:
    """Assigns sockets to the wanted addresses: by the same address or, if the port is
    0, any socket on that host whose own address is not wanted."""
    bound: dict[Address, list[socket.socket]] = {}
    for sock in sockets:
        bound.setdefault(bound_address(sock), []).append(sock)
    groups = {(address, 0): bound.pop(address)
              for address in wanted if address in bound}
    for i, (host, port) in enumerate(wanted):
        free = next((address for address in bound if address[0] == host), None)
        if port == 0 and free is not None:
            groups[(host, 0), wanted[:i].count((host, 0))] = bound.pop(free)
    return groups


def files_of(sockets: Iterable[socket.socket]) -> dict[str, int]:
    """Returns the path and the inode of each unix socket's file."""
    paths = (path_of(bound_address(sock)) for sock in sockets)
    return {path: inode_of(path) for path in paths if path}


def remove_files(files: dict[str, int]) -> None:
    for path, inode in files.items():
        remove(path, inode)


def open_missing(listener: Listener, group: list[socket.socket], slots: int,
                 undo: contextlib.ExitStack) -> list[socket.socket]:
    """Opens the sockets that a listener lacks. A file gets its present mode and owner;
    `undo` gives it the previous ones.

    Raises OSError.
    """
    if not group:
        return listen(listener.address, slots, listener.mode, listener.owner,
                      listener.backlog or BACKLOG)
    if listener.is_path:
        path = path_of(listener.address)
        undo.callback(restore_access, path, os.lstat(path))
        set_access(path, listener.mode, listener.owner)
        return []
    return join_all(group, slots)


def restore_access(path: str, before: os.stat_result) -> None:
    with contextlib.suppress(OSError):           # the file may have gone since
        os.chown(path, before.st_uid, before.st_gid, follow_symlinks=False)
        os.chmod(path, stat.S_IMODE(before.st_mode))


def change_transparent(sock: socket.socket, on: bool, undo: contextlib.ExitStack
                       ) -> None:
    """Raises OSError."""
    if sock.family != socket.AF_UNIX and is_transparent(sock) != on:
        undo.callback(set_transparent, sock, not on)
        set_transparent(sock, on)


def change_backlog(sock: socket.socket, backlog: int, undo: contextlib.ExitStack
                   ) -> None:
    """0: the socket keeps its own. Raises OSError."""
    if not backlog or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        return
    if sock.family != socket.AF_UNIX:        # whose backlog cannot be read
        undo.callback(sock.listen, read_bound(sock))
    sock.listen(backlog)


def change_saved_syn(sock: socket.socket, on: bool, undo: contextlib.ExitStack) -> None:
    """Raises OSError."""
    if saves_syn(sock) != on:
        undo.callback(set_saved_syn, sock, not on)
        set_saved_syn(sock, on)


def join_all(group: list[socket.socket], slots: int) -> list[socket.socket]:
    """Opens the sockets that a group lacks. A socket of another user (systemd opens
    sockets as root) cannot be joined: then the slots share the existing ones."""
    if len(group) >= slots:
        return []
    try:
        group[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return join(group, slots - len(group))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return []
