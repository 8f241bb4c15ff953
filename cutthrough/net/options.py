"""Socket options of listeners: the requested values, and the values in force.

The options are read back, because the kernel changes some values without an error: it
cuts a backlog at net.core.somaxconn, and doubles a buffer's size. If systemd opened a
socket, it has none of `listener`'s options. Accepted sockets inherit the options.
"""

import socket
import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from cutthrough.net.listener import BACKLOG

# struct tcp_info: eight bytes, then words: rto, ato, snd_mss, rcv_mss, unacked, sacked.
# On a listening socket the last two are its queue's length and bound (tcp_get_info).
QUEUE = struct.Struct("=24xII")

# Name, level, number, and the value that `listener` sets; None: the kernel's default
LISTENER: list[tuple[str, int, int, int | None]] = [
    ("SO_REUSEADDR", socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
    ("SO_REUSEPORT", socket.SOL_SOCKET, socket.SO_REUSEPORT, 1),
    ("IPV6_V6ONLY", socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1),
    ("TCP_NODELAY", socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    ("TCP_DEFER_ACCEPT", socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, None),
    ("SO_KEEPALIVE", socket.SOL_SOCKET, socket.SO_KEEPALIVE, None),
    # By default they grow with the path, to the last number of tcp_rmem and tcp_wmem
    ("SO_RCVBUF", socket.SOL_SOCKET, socket.SO_RCVBUF, None),
    ("SO_SNDBUF", socket.SOL_SOCKET, socket.SO_SNDBUF, None),
]


class SocketOption(NamedTuple):
    name: str
    asked: int | None
    in_force: tuple[int, ...]                # the group's distinct values, sorted

    @property
    def granted(self) -> bool:
        return self.asked is None or self.in_force == (self.asked,)


def read_options(group: Sequence[socket.socket], backlog: int = BACKLOG
                 ) -> list[SocketOption]:
    """Reads back the options of the sockets that listen on one address. `backlog`: the
    requested one."""
    options = [SocketOption("backlog", backlog, _each(map(read_bound, group)))]
    for name, level, number, value in LISTENER:
        if level != socket.IPPROTO_IPV6 or group[0].family == socket.AF_INET6:
            values = _each(sock.getsockopt(level, number) for sock in group)
            options.append(SocketOption(name, value, values))
    return options


def read_bound(listening: socket.socket) -> int:
    """The most connections that the kernel queues for accept."""
    info = listening.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, QUEUE.size)
    return int(QUEUE.unpack(info)[1])


def _each(values: Iterable[int]) -> tuple[int, ...]:
    return tuple(sorted(set(values)))
