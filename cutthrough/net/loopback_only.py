"""A network namespace with only loopback, so that no packet leaves the machine.

network_namespaces(7). An unprivileged process cannot return from it.
"""

import ctypes
import errno
import os
import socket
import struct
import time
from collections.abc import Iterable
from ipaddress import ip_address
from pathlib import Path

import psutil

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
# rtnetlink(7): lengths and numbers of <linux/rtnetlink.h>, <linux/if_addr.h>
RTM_NEWLINK, RTM_NEWADDR = 16, 20
NLM_F_REQUEST, NLM_F_ACK, NLM_F_CREATE = 0x1, 0x4, 0x400
IFF_UP, IFA_F_NODAD = 0x1, 0x2
IFA_ADDRESS, IFA_LOCAL = 1, 2
HEAD = struct.Struct("=IHHII")          # length, type, flags, sequence, port
LINK = struct.Struct("=BxHiII")         # family, type, index, flags, mask of changes
ADDRESS = struct.Struct("=BBBBI")       # family, prefix, flags, scope, index
ATTRIBUTE = struct.Struct("=HH")


def is_alone() -> bool:
    """Whether loopback is the only interface that is up."""
    interfaces = psutil.net_if_stats()
    return [name for name, stats in interfaces.items() if stats.isup] == ["lo"]


def enter(addresses: Iterable[str]) -> None:
    """Moves this process into a new namespace, with these addresses on `lo`.

    The process must have one thread. Raises OSError if the kernel does not allow it;
    the process must end then, because it may have left its network.
    """
    user, group = os.geteuid(), os.getegid()
    try:
        _unshare(CLONE_NEWNET)
    except PermissionError:
        _unshare(CLONE_NEWUSER | CLONE_NEWNET)
        process = Path("/proc/self")
        (process / "uid_map").write_text(f"{user} {user} 1")
        (process / "setgroups").write_text("deny")      # user_namespaces(7)
        (process / "gid_map").write_text(f"{group} {group} 1")
    index = socket.if_nametoindex("lo")
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE
    ) as kernel:
        _ask(kernel, RTM_NEWLINK, LINK.pack(0, 0, index, IFF_UP, IFF_UP))
        added = [text for text in addresses if _add(kernel, index, text)]
    deadline = time.monotonic() + 10
    while not all(map(_is_reached, added)) and time.monotonic() < deadline:
        time.sleep(0.005)           # the kernel adds IPv6 routes late, unreported


def _is_reached(text: str) -> bool:
    """Whether this host answers there. EINVAL: a link-local address needs its zone."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    with socket.socket(family) as sock:
        sock.settimeout(0.1)
        return sock.connect_ex((text, 9)) in (0, errno.ECONNREFUSED, errno.EINVAL)


def _unshare(flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)        # os.unshare: Python 3.12
    if libc.unshare(flags):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def _add(kernel: socket.socket, index: int, text: str) -> bool:
    """Returns False for a loopback address: `lo` has it already."""
    address = ip_address(text)
    if address.is_loopback:
        return False
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    data = ADDRESS.pack(family, address.max_prefixlen, IFA_F_NODAD, 0, index)
    for kind in (IFA_LOCAL, IFA_ADDRESS):
        data += ATTRIBUTE.pack(ATTRIBUTE.size + len(address.packed), kind)
        data += address.packed
    _ask(kernel, RTM_NEWADDR, data)
    return True


def _ask(kernel: socket.socket, kind: int, data: bytes) -> None:
    flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE
    kernel.send(HEAD.pack(HEAD.size + len(data), kind, flags, 1, 0) + data)
    (error,) = struct.unpack_from("=i", kernel.recv(4096), HEAD.size)
    if error:
        raise OSError(-error, os.strerror(-error))
