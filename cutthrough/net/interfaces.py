"""The addresses of this host, and their changes.

The kernel reports each change to an rtnetlink socket (rtnetlink(7)). The messages are
not interpreted, because a slow reader loses some of them (ENOBUFS): after any report
all addresses are read again, by getifaddrs(3), shortly after the first of several.
"""

import asyncio
import logging
import socket
from collections.abc import Callable

from cutthrough.net.own_addresses import own_hosts

__all__ = ("Interfaces", "open_reports", "own_hosts")

log = logging.getLogger("cutthrough")

# <linux/rtnetlink.h>
RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR = 0x10, 0x100
# Changes come in bursts, because an interface gets all its addresses at once
SETTLE = 0.05
# Without rtnetlink: the time between two reads
POLL = 1.0


def open_reports() -> socket.socket:
    """Opens a socket that becomes readable if an address is added or removed; the
    caller closes it. Raises OSError."""
    sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    try:
        sock.setblocking(False)
        sock.bind((0, RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR))
    except OSError:
        sock.close()
        raise
    return sock


class Interfaces:
    """Calls `on_change` with all addresses, now and after each change, until `close`.

    `read` returns them; `open_reports` opens the socket that reports a change.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop,
                 on_change: Callable[[list[str]], None],
                 read: Callable[[], list[str]] = own_hosts,
                 open_reports: Callable[[], socket.socket] = open_reports) -> None:
        self._loop = loop
        self._on_change = on_change
        self._read = read
        self._known: set[str] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sock: socket.socket | None = None
        try:
            self._sock = open_reports()     # first, so that no change is missed
            loop.add_reader(self._sock.fileno(), self._on_report)
        except OSError as error:
            log.warning("rtnetlink is not available (%s): this host's addresses are "
                        "read once a second", error.strerror)
        self._look()

    def _on_report(self) -> None:
        assert self._sock is not None
        while True:
            try:
                self._sock.recv(65536)
            except BlockingIOError:
                break
            except OSError:                 # ENOBUFS: all addresses are read anyway
                continue
        if self._timer is None:
            self._timer = self._loop.call_later(SETTLE, self._look)

    def _look(self) -> None:
        self._timer = None
        try:
            addresses = self._read()
        except OSError as error:
            log.warning("this host's addresses cannot be read: %s", error.strerror)
            self._timer = self._loop.call_later(POLL, self._look)
            return
        if self._known != set(addresses):
            self._known = set(addresses)
            self._on_change(addresses)
        if self._sock is None:
            self._timer = self._loop.call_later(POLL, self._look)

    def close(self) -> None:
        """Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._sock is not None:
            self._loop.remove_reader(self._sock.fileno())
            self._sock.close()
            self._sock = None
