"""Network namespaces of the tests: only loopback, with their own settings.

All tests run in one. Any other address has no route there: if a test or a proxy dials
one, no packet is sent, and the kernel counts the attempt (`strays`).
"""

import contextlib
import ctypes
import fcntl
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP = 0x8913, 0x8914, 1
SIOCSIFADDR, SIOCSIFNETMASK = 0x8916, 0x891C
# netdevice(7): a name, then its flags; a name, then an address; in6_ifreq
IFREQ, IFREQ_IPV4 = struct.Struct("16sh22x"), struct.Struct("16sHxx4s16x")
IFREQ_IPV6 = struct.Struct("16sIi")
CAPABILITY_VERSION_3 = 0x20080522       # capset(2)
#: Addresses of this host other than loopback, from the documentation ranges (RFC 5737,
#: RFC 3849).
OWN_IPV4, OWN_IPV6 = "198.51.100.77", "2001:db8:77::1"
IPV4, IPV6 = Path("/proc/sys/net/ipv4"), Path("/proc/sys/net/ipv6/conf/all")


@contextlib.contextmanager
def own_network() -> Iterator[None]:
    """Moves this thread into a network of its own; skips the test if not allowed.

    Sockets stay in the network of their creation.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    with contextlib.ExitStack() as stack:
        old = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        stack.callback(os.close, old)
        if libc.unshare(CLONE_NEWNET):
            pytest.skip(f"unshare: {os.strerror(ctypes.get_errno())}")
        stack.callback(libc.setns, old, CLONE_NEWNET)
        raise_loopback()
        yield


def enter_alone() -> str:
    """Moves this single-threaded process into a network with `lo` alone.

    `lo` also has OWN_IPV4 and OWN_IPV6. Returns "", or the reason if that is not
    possible; the process has then not moved, because a child tries first. Without
    privilege the network belongs to a user namespace. This process keeps its user there
    and gets no capability.
    """
    if is_alone():
        return ""
    child = os.fork()
    if child == 0:
        try:
            _enter()
        except OSError as error:
            os._exit(error.errno)
        os._exit(0)
    error = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not error:
        _enter()
        return ""
    return f"unshare: {os.strerror(error)}"


def _enter() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) == 0:
        raise_loopback()
        _add_addresses()
        return
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare")
    process = Path("/proc/self")
    (process / "uid_map").write_text(f"{user} {user} 1")
    (process / "setgroups").write_text("deny")          # user_namespaces(7)
    (process / "gid_map").write_text(f"{group} {group} 1")
    raise_loopback()
    _add_addresses()
    header = struct.pack("Ii", CAPABILITY_VERSION_3, 0)
    if libc.capset(header, bytes(24)):
        raise OSError(ctypes.get_errno(), "capset")


def is_alone() -> bool:
    """Is loopback the only interface that is up? Then no packet can leave."""
    with socket.socket() as sock:
        return ["lo"] == [name for _, name in socket.if_nameindex()
                          if _flags(sock, name) & IFF_UP]


def _flags(sock: socket.socket, name: str) -> int:
    request = IFREQ.pack(name.encode(), 0)
    return IFREQ.unpack(fcntl.ioctl(sock, SIOCGIFFLAGS, request))[1]


def raise_loopback() -> None:
    set_link("lo", is_up=True)


def set_link(name: str, *, is_up: bool) -> None:
    """Raises this interface, or takes it down."""
    with socket.socket() as sock:
        flags = _flags(sock, name)
        flags = flags | IFF_UP if is_up else flags & ~IFF_UP
        fcntl.ioctl(sock, SIOCSIFFLAGS, IFREQ.pack(name.encode(), flags))


def _add_addresses() -> None:
    with socket.socket() as sock:
        for call, text in (SIOCSIFADDR, OWN_IPV4), (SIOCSIFNETMASK, "255.255.255.255"):
            packed = socket.inet_aton(text)
            fcntl.ioctl(sock, call, IFREQ_IPV4.pack(b"lo:1", socket.AF_INET, packed))
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as sock:
        packed = socket.inet_pton(socket.AF_INET6, OWN_IPV6)
        fcntl.ioctl(sock, SIOCSIFADDR, IFREQ_IPV6.pack(packed, 128, 1))


def strays() -> int:
    """Returns how often a process in this network has dialled, or sent to, an address
    without a route. In a network with `lo` alone that is any but loopback."""
    head, values = (line.split() for line in Path("/proc/self/net/snmp").open()
                    if line.startswith("Ip:"))
    count = int(values[head.index("OutNoRoutes")])
    with contextlib.suppress(FileNotFoundError):        # a kernel without IPv6
        for line in Path("/proc/self/net/snmp6").open():
            if line.startswith("Ip6OutNoRoutes"):
                count += int(line.split()[1])
    return count


def refuse_elsewhere() -> None:
    """Restricts Python's sockets to loopback, if no network namespace can be made.

    The restriction lasts until the process ends.
    """
    def look(event: str, args: tuple) -> None:
        if event not in ("socket.connect", "socket.sendto", "socket.sendmsg"):
            return
        sock, address = args
        if sock.family in (socket.AF_INET, socket.AF_INET6) and address is not None:
            host = address[0].partition("%")[0]
            with contextlib.suppress(ValueError):       # a name, e.g. localhost
                here = ipaddress.ip_address(host)
                assert here.is_loopback or here.is_unspecified, f"{host} is elsewhere"

    sys.addaudithook(look)
