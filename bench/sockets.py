"""The owners of TCP connections, from the kernel by sock_diag(7).

/proc/net/tcp has the same data, but lists every connection in TIME_WAIT, tens of
thousands beside a load, and took half a second. Here the kernel filters by port.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Iterator

from bench.children import BenchError

SOCK_DIAG_BY_FAMILY, NETLINK_SOCK_DIAG = 20, 4
NLMSG_ERROR, NLMSG_DONE, REQUEST_DUMP = 2, 3, 0x301
HEADER = struct.Struct("=IHHII")  # nlmsghdr
ASK = struct.Struct("=BBxxI2s2s44x")  # inet_diag_req_v2
ANSWER = struct.Struct("=4x2s2s60xI")  # inet_diag_msg
#: All but TIME_WAIT, which belongs to no process, and LISTEN.
STATES = 0xFFF & ~(1 << 6 | 1 << 10)


def connections(*, here: int = 0, there: int = 0) -> Iterator[tuple[int, int, str]]:
    """Yield local port, remote port and inode of each IPv4 connection with these ports;
    0 is any."""
    ask = ASK.pack(socket.AF_INET, socket.IPPROTO_TCP, STATES,
                   here.to_bytes(2, "big"), there.to_bytes(2, "big"))  # fmt: skip
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as sock:
        sock.sendall(HEADER.pack(HEADER.size + len(ask), SOCK_DIAG_BY_FAMILY,
                                 REQUEST_DUMP, 1, 0) + ask)  # fmt: skip
        while True:
            data, at = sock.recv(1 << 17), 0
            while at < len(data):
                length, kind, _, _, _ = HEADER.unpack_from(data, at)
                if kind == NLMSG_DONE:
                    return
                if kind == NLMSG_ERROR:
                    raise BenchError("sock_diag: the kernel does not tell of sockets")
                row = ANSWER.unpack_from(data, at + HEADER.size)
                near, far = (int.from_bytes(port, "big") for port in row[:2])
                yield near, far, str(row[2])
                at += length + 3 & ~3


def sockets_of(pid: int) -> set[str]:
    """Return the inodes of the sockets that a process has open."""
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            kind, _, inode = os.readlink(f"/proc/{pid}/fd/{fd}").partition(":[")
            if kind == "socket":
                found.add(inode.rstrip("]"))
    return found


def ports_at(
    port: int, server: set[str], client: set[str]
) -> tuple[set[int], set[int]]:
    """Return the client ports of `port`'s connections at `server`, and those of them
    whose other end is at `client`; both are inodes.

    The server must be stopped meanwhile. The kernel is queried twice, because a table
    that changes between two parts of an answer may skip a row.
    """
    ports: set[int] = set()
    theirs: set[int] = set()
    for _ in range(2):
        ports |= {far for _, far, inode in connections(here=port) if inode in server}
        theirs |= {near for near, _, inode in connections(there=port)
                   if inode in client}  # fmt: skip
    return ports, ports & theirs
