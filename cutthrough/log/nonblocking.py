"""Standard output and standard error, written without ever waiting.

O_NONBLOCK belongs to the open file, which the parent and all its children share, so it
must not be set. A pipe or a terminal is therefore reopened, and a socket is written
with MSG_DONTWAIT. If neither is possible, poll(2) is asked for room before each write.
"""

import io
import os
import select
import socket
import stat
from typing import Any, TextIO

# PIPE_BUF: a writable pipe takes this much at once and whole
ATOMIC = 4096
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


def open_nonblocking(fd: int) -> int:
    """Returns a new non-blocking descriptor of the same pipe or terminal, which the
    caller closes, or `fd` itself if it cannot be reopened."""
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            return os.open(f"/proc/self/fd/{fd}", FLAGS)
    except OSError:                          # of another user, no /proc, or closed
        pass
    return fd


def open_path(path: str) -> int:
    """Opens the path non-blocking, a FIFO without a reader too; "-": standard output.

    Raises OSError."""
    return open_nonblocking(1) if path == "-" else os.open(
        path, FLAGS | os.O_CREAT, 0o640)


class Nonblocking:
    """Writes lines to descriptor `fd`, as far as it takes them without waiting."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._own = open_nonblocking(fd)
        self._socket: socket.socket | None = None
        self._torn = False                   # the last write ended within a line
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISSOCK(mode):
                self._socket = socket.socket(fileno=os.dup(fd))
        except OSError:
            mode = 0
        # A regular file never blocks, and reopening it would lose its offset
        self._polls = self._own == fd and not stat.S_ISREG(mode)

    def write(self, text: str) -> bool:
        """Writes `text` and a line's end. Returns whether all of it was written."""
        data = f"{text}\n".encode("utf-8", "backslashreplace")
        if self._torn:
            data = b"\n" + data
        done = 0
        try:
            while done < len(data):
                done += self.try_write(data[done:])
        except OSError:                      # no room, or the reader is gone
            pass
        if done:
            self._torn = done < len(data) and (done > 1 or not self._torn)
        return done == len(data)

    def try_write(self, data: bytes) -> int:
        """Returns how many bytes were written. Raises OSError: none can be."""
        if self._socket is not None:
            return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        if self._polls:
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            if not poll.poll(0):
                raise BlockingIOError
            data = data[:ATOMIC]
        return os.write(self._own, data)

    def close(self) -> None:
        """Closes the descriptors opened here; `fd` stays open."""
        if self._socket is not None:
            self._socket.close()
        if self._own != self._fd:
            os.close(self._own)
            self._own = self._fd
            self._polls = True


class _Raw(io.RawIOBase):

    def __init__(self, fd: int) -> None:
        self._fd, self._out = fd, Nonblocking(fd)

    def fileno(self) -> int:
        return self._fd

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        try:
            return self._out.try_write(bytes(data))
        except OSError:                      # nobody reads it: it is lost
            return len(data)


def open_text(fd: int, encoding: str) -> TextIO:
    """A file in place of sys.stdout or sys.stderr, for code that prints. A line goes
    out at once, or is lost."""
    return io.TextIOWrapper(io.BufferedWriter(_Raw(fd)), encoding,
                            errors="backslashreplace", line_buffering=True)
