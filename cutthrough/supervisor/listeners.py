"""The listening sockets of all slots, through changes of address and worker count.

A socket on an address that stays is never closed: what the kernel has queued on it
would be reset, and no client is to notice a reload. Where workers become fewer, those
that stay get the sockets of those that went.
"""

import contextlib
import errno
import socket
from collections.abc import Iterable

from cutthrough.config.values import show_address
from cutthrough.net.listener import Address, bound_address, join, listen

# An address that is asked for, and which one of that spelling: two may say port 0
Key = tuple[Address, int]


class Listeners:
    """Owns every listening socket; `close` closes them.

    `adopted`: sockets that somebody else opened (systemd, the program before us); ours
    from here on. `open` takes those whose address is asked for and closes the others.
    """

    def __init__(self, adopted: Iterable[socket.socket] = (),
                 activated: bool = False) -> None:
        self.activated = activated           # by the service manager, us or before us
        self._adopted = list(adopted)
        self._groups: dict[Key, list[socket.socket]] = {}
        self._leaving: list[socket.socket] = []

    def open(self, addresses: Iterable[Address], slots: int) -> None:
        """Opens what lacks, so that each slot has a socket on each address.

        Addresses that are not named leave, at the next `drop_left`; one that is named
        before that comes back. Raises OSError with the address as its file name; then
        nothing has changed.
        """
        wanted = list(addresses)
        adopted = group_adopted([*self._adopted, *self._leaving], wanted)
        with contextlib.ExitStack() as opened:
            groups = {}
            for i, address in enumerate(wanted):
                key = (address, wanted[:i].count(address))
                group = self._groups.get(key) or adopted.get(key, [])
                try:
                    more = join_all(group, slots) if group else listen(address, slots)
                except OSError as error:
                    error.filename = show_address(address)
                    raise
                for sock in more:
                    opened.enter_context(sock)
                groups[key] = group + more
            opened.pop_all()
        kept = [sock for group in groups.values() for sock in group]
        for sock in self._adopted:
            if sock not in kept:
                sock.close()
        self._adopted.clear()
        self._leaving = [sock for sock in (*self._leaving, *self.all())
                         if sock not in kept]
        self._groups = groups

    def of_slot(self, index: int, slots: int) -> list[socket.socket]:
        """Returns the sockets of one slot of `slots`: together they have them all.

        Where an address has fewer sockets than there are slots, they share.
        """
        found = []
        for group in self._groups.values():
            found += group[index::slots] or [group[index % len(group)]]
        return found

    def all(self) -> list[socket.socket]:
        return [sock for group in self._groups.values() for sock in group]

    def bound(self) -> list[Address]:
        """Returns each address with its real port."""
        return [bound_address(group[0]) for group in self._groups.values()]

    def drop_left(self) -> None:
        """Closes the sockets of addresses that are gone, once no worker has them."""
        for sock in self._leaving:
            sock.close()
        self._leaving.clear()

    def close(self) -> None:
        self.drop_left()
        for group in self._groups.values():
            for sock in group:
                sock.close()
        self._groups.clear()


def group_adopted(sockets: list[socket.socket],
                  wanted: list[Address]) -> dict[Key, list[socket.socket]]:
    """Assigns sockets to the addresses that are wanted: the same one, or with port 0
    one of that host that nobody else asks for."""
    bound: dict[Address, list[socket.socket]] = {}
    for sock in sockets:
        bound.setdefault(bound_address(sock), []).append(sock)
    found = {(address, 0): bound.pop(address) for address in wanted if address in bound}
    for i, (host, port) in enumerate(wanted):
        free = next((address for address in bound if address[0] == host), None)
        if port == 0 and free is not None:
            found[(host, 0), wanted[:i].count((host, 0))] = bound.pop(free)
    return found


def join_all(group: list[socket.socket], slots: int) -> list[socket.socket]:
    """Opens what a group lacks. A socket of another user (systemd opens as root) cannot
    be joined: then the slots share what is there."""
    if len(group) >= slots:
        return []
    try:
        group[0].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        return join(group, slots - len(group))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        return []
