"""Listening sockets in the file system.

One socket serves all workers: a path has one, and the kernel has no SO_REUSEPORT there.
A start replaces a file if no program answers there, because the file outlives its
program, and an end removes its own, which it knows by the inode.
"""

import contextlib
import errno
import grp
import os
import pwd
import socket
import stat

# struct sockaddr_un, less the NUL
MOST_BYTES = 107


def open_unix(path: str, mode: int, owner: str) -> socket.socket:
    """Returns a bound socket, which takes callers after `listen`.

    Raises OSError: EADDRINUSE if a program listens there, or if the path is no socket.
    """
    _remove_stale(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    try:
        # bind(2) gives the file the socket's own mode, less the umask: until
        # `set_access` nobody has more rights than the mode gives
        os.fchmod(sock.fileno(), mode)
        sock.bind(path)
        try:
            set_access(path, mode, owner)
        except BaseException:
            os.unlink(path)
            raise
    except BaseException:
        sock.close()
        raise
    return sock


def set_access(path: str, mode: int, owner: str) -> None:
    """Sets the mode and, if it is not empty, the owner. Raises OSError."""
    if owner:
        os.chown(path, *find_owner(owner), follow_symlinks=False)
    if stat.S_IMODE(os.lstat(path).st_mode) != mode:
        os.chmod(path, mode)


def find_owner(text: str) -> tuple[int, int]:
    """Returns the ids of `user`, `user:group` or `:group`; -1: unchanged.

    Raises OSError if there is no such user or group.
    """
    user, _, group = text.partition(":")
    try:
        uid = -1 if not user else int(user) if user.isdigit() else (
            pwd.getpwnam(user).pw_uid)
        gid = -1 if not group else int(group) if group.isdigit() else (
            grp.getgrnam(group).gr_gid)
    except KeyError:
        raise OSError(errno.EINVAL, f"no such user or group: {text}") from None
    return uid, gid


def inode_of(path: str) -> int:
    """The file's inode; 0: there is none."""
    with contextlib.suppress(OSError):
        return os.lstat(path).st_ino
    return 0


def remove(path: str, inode: int) -> None:
    """Removes the file if it is still the one with this inode."""
    if inode and inode_of(path) == inode:
        with contextlib.suppress(OSError):
            os.unlink(path)


def is_answered(path: str) -> bool:
    """Whether a program listens there. Its queue may be full: this does not wait."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.setblocking(False)
        return probe.connect_ex(path) in (0, errno.EAGAIN)


def _remove_stale(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise OSError(errno.EADDRINUSE, "exists, and is not a socket")
        if is_answered(path):
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        os.unlink(path)
