"""Opens listening sockets.

Every worker slot has its own socket on each address (SO_REUSEPORT), and the kernel
spreads the clients over them. A path in the file system (`unix:/path`, with port 0) has
one socket for all of them. The caller of `listen` owns and closes its sockets.
"""

import contextlib
import errno
import socket

from cutthrough.net.unix_listener import open_unix

# Linux caps it by net.core.somaxconn, which has been 4096 since Linux 5.4.
BACKLOG = 4096

UNIX = "unix:"
TCP_SAVE_SYN = 27                            # of linux/tcp.h; Python's socket lacks it
MODE = 0o660                                 # of a path: its owner and its group

Address = tuple[str, int]


def path_of(address: Address) -> str:
    """The path of `unix:/path`; "": another address."""
    return address[0].removeprefix(UNIX) if address[0].startswith(UNIX) else ""


def listen(address: Address, sockets: int = 1, mode: int = MODE,
           owner: str = "", backlog: int = BACKLOG) -> list[socket.socket]:
    """Opens `sockets` listening sockets on one address, and returns them.

    On a path it opens one, whose file has this mode and owner. With port 0 they share
    a free port. All are non-blocking and close-on-exec.
    Raises OSError (EADDRINUSE, EACCES, EADDRNOTAVAIL …), and then leaves nothing open.
    """
    path = path_of(address)
    with contextlib.ExitStack() as opened:
        if path:
            only = opened.enter_context(open_unix(path, mode, owner))
            only.listen(backlog)
            opened.pop_all()
            return [only]
        first = opened.enter_context(_bind(address, shared=False))
        # Only now, because a bind without SO_REUSEPORT succeeds only if the address is
        # free; with it, a second proxy of the same user could join unnoticed and take
        # half of the clients. From here on the group's other sockets may join.
        first.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        group = [first]
        bound = bound_address(first)
        if address[1] == 0:     # shutdown(2) would give back a port that was not named
            group = [opened.enter_context(_bind(bound, shared=True))]
            first.close()
        for _ in range(sockets - 1):
            group.append(opened.enter_context(_bind(bound, shared=True)))
        for member in group:
            member.listen(backlog)
        opened.pop_all()
        return group


def join(group: list[socket.socket], sockets: int) -> list[socket.socket]:
    """Opens `sockets` more on the address of a group that `listen` made.

    They take clients only after `begin`: until then the others take them all. Returns
    only the new sockets. Raises OSError, and then leaves nothing open.
    """
    with contextlib.ExitStack() as opened:
        bound = bound_address(group[0])
        more = [opened.enter_context(_bind(bound, shared=True)) for _ in range(sockets)]
        opened.pop_all()
        return more


def begin(sock: socket.socket, backlog: int = BACKLOG) -> None:
    """Starts listening if the socket does not listen yet, because an inherited socket
    keeps its backlog. Raises OSError."""
    if not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.listen(backlog)


def set_transparent(sock: socket.socket, on: bool) -> None:
    """Lets a listening socket take connections to other hosts' addresses, which
    nftables' tproxy brings. Raises OSError if the process has no CAP_NET_ADMIN."""
    if sock.family != socket.AF_UNIX and is_transparent(sock) != on:
        sock.setsockopt(socket.IPPROTO_IP, socket.IP_TRANSPARENT, on)


def is_transparent(sock: socket.socket) -> bool:
    return _is_on(sock, socket.IPPROTO_IP, socket.IP_TRANSPARENT)


def set_saved_syn(sock: socket.socket, on: bool) -> None:
    """Has the kernel keep the headers of the SYN of each connection that this listening
    socket accepts, until they are read. Raises OSError."""
    if saves_syn(sock) != on:
        sock.setsockopt(socket.IPPROTO_TCP, TCP_SAVE_SYN, on)


def saves_syn(sock: socket.socket) -> bool:
    return _is_on(sock, socket.IPPROTO_TCP, TCP_SAVE_SYN)


def _is_on(sock: socket.socket, level: int, number: int) -> bool:
    """Whether an option of IP is on. It is off if what runs in the kernel's place does
    not know it: qemu-user has no IP_TRANSPARENT (7.2)."""
    if sock.family == socket.AF_UNIX:
        return False
    try:
        return bool(sock.getsockopt(level, number))
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
        return False


def _bind(address: Address, *, shared: bool) -> socket.socket:
    # Numeric: it turns the zone of fe80::1%eth0 into a number, without a resolver.
    family, kind, protocol, _, where = socket.getaddrinfo(
        *address, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)[0]
    sock = socket.socket(family, kind | socket.SOCK_NONBLOCK, protocol)
    try:
        # A restart must not wait for closed connections in TIME_WAIT.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            # [::] and 0.0.0.0 are two listeners, regardless of net.ipv6.bindv6only,
            # and no client appears as ::ffff:a.b.c.d.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        # Here, because accepted sockets inherit it on Linux: no system call for each.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.bind(where)
    except BaseException:
        sock.close()
        raise
    return sock


def bound_address(sock: socket.socket) -> Address:
    """Returns the address and the real port of a bound socket."""
    if sock.family == socket.AF_UNIX:
        return f"{UNIX}{sock.getsockname()}", 0
    if sock.family == socket.AF_INET6:
        host, port = socket.getnameinfo(
            sock.getsockname(), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV)
        return host, int(port)
    host, number = sock.getsockname()[:2]
    return host, number
