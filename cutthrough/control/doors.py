"""The listening sockets of all slots, through changes of address and worker count.

A socket on an address that stays is never closed: what the kernel has queued on it
would be reset, and no client is to notice a reload. Where workers become fewer, those
that stay get the sockets of those that went.
"""

import contextlib
import socket
from collections.abc import Iterable

from cutthrough.net.listener import Address, bound_address, join, listen
from cutthrough.values import show_address


class Doors:
    """Owns every listening socket; `close` closes them."""

    def __init__(self) -> None:
        self._groups: dict[Address, list[socket.socket]] = {}
        self._leaving: list[socket.socket] = []

    def open(self, addresses: Iterable[Address], slots: int) -> None:
        """Opens what lacks, so that each slot has a socket on each address.

        Addresses that are not named leave, at the next `drop_left`. Raises OSError with
        the address as its file name; then nothing has changed.
        """
        wanted = list(dict.fromkeys(addresses))
        with contextlib.ExitStack() as opened:
            groups = {}
            for address in wanted:
                group = self._groups.get(address, [])
                try:
                    more = (join(group, max(0, slots - len(group))) if group
                            else listen(address, slots))
                except OSError as error:
                    error.filename = show_address(address)
                    raise
                for sock in more:
                    opened.enter_context(sock)
                groups[address] = group + more
            opened.pop_all()
        for address, group in self._groups.items():
            if address not in groups:
                self._leaving += group
        self._groups = groups

    def of_slot(self, index: int, slots: int) -> list[socket.socket]:
        """Returns the sockets of one slot of `slots`: together they have them all."""
        return [sock for group in self._groups.values() for sock in group[index::slots]]

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
