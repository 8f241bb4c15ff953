"""Standard output and standard error, written without ever waiting.

Not to wait is a property of what is open, and that is shared with whoever started us
and all of its children. So a pipe or a terminal is opened anew; a socket is asked not
to wait in each call; what can be neither is written to where poll(2) says that there is
room.
"""

import os
import select
import socket
import stat

# PIPE_BUF: so much a pipe takes whole, and at once where it is writable at all
ATOMIC = 4096


def open_anew(fd: int) -> int:
    """A descriptor of the same pipe or terminal that never waits, which the caller
    closes; `fd` itself where that cannot be had."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            return os.open(f"/proc/self/fd/{fd}", flags)
    except OSError:                          # of another user, without /proc, closed
        pass
    return fd


class Nonblocking:
    """Writes lines to descriptor `fd`, as far as it takes them at once."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._own = open_anew(fd)
        self._socket: socket.socket | None = None
        self._torn = False                   # it ends in the middle of a line
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_ISSOCK(mode):
                self._socket = socket.socket(fileno=os.dup(fd))
        except OSError:
            mode = 0
        # A file takes everything, and its own descriptor has its place in it
        self._asks = self._own == fd and not stat.S_ISREG(mode)

    def write(self, text: str) -> bool:
        """Writes `text` and a line's end; whether all of it was taken."""
        data = f"{text}\n".encode("utf-8", "backslashreplace")
        if self._torn:
            data = b"\n" + data
        done = 0
        try:
            while done < len(data):
                done += self._write(data[done:])
        except OSError:                      # no room, or whoever read it is gone
            pass
        if done:
            self._torn = done < len(data) and (done > 1 or not self._torn)
        return done == len(data)

    def _write(self, data: bytes) -> int:
        if self._socket is not None:
            return self._socket.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        if self._asks:
            poll = select.poll()
            poll.register(self._fd, select.POLLOUT)
            if not poll.poll(0):
                raise BlockingIOError
            data = data[:ATOMIC]
        return os.write(self._own, data)

    def close(self) -> None:
        """Closes what was opened here; `fd` stays."""
        if self._socket is not None:
            self._socket.close()
        if self._own != self._fd:
            os.close(self._own)
            self._own = self._fd
            self._asks = True
