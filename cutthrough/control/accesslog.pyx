# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The access log: one line for each request and each tunnel, at its end.

Lines are formatted in C into one buffer and written in batches, whole lines only, so that
many workers can append to one file. A pipe that they share takes only PIPE_BUF bytes at
once (pipe(7)), so there no line is longer: a path that would make it so is cut, and ends
in "…". A log that cannot keep up never holds up the proxy: a pipe or terminal is written
to only while it takes bytes without waiting, and lines that find the buffer full are
dropped and counted.

How a line is made: control.lines and control.formatline.
"""

import os
import stat

from libc.string cimport memmove
from cutthrough.control.formatline import FormatLine
from cutthrough.control.lines cimport Line
from cutthrough.control.lines import JsonLine
from cutthrough.session.client cimport Client, Journal
from cutthrough.wire.http1 cimport Head

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents
    int poll(pollfd *fds, unsigned long n, int timeout_ms)
    short POLLOUT

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void *buf, size_t n)

cdef enum:
    BUFFER = 131072
    FLUSH_AT = 65536
    ATOMIC = 4096               # PIPE_BUF: a write up to this is whole, or waits
    MOST_LINE = 8192            # all that one line can come to, in a file
    FLUSH_MS = 100


cdef class AccessLog(Journal):
    cdef char buffer[BUFFER]
    cdef size_t n
    cdef int fd
    cdef bint is_file, scheduled
    cdef Line line
    cdef readonly unsigned long dropped
    cdef readonly unsigned long lines
    cdef object loop, path

    def __init__(self, loop, path, format, worker=0):
        """Appends to the file `path`, to standard output for "-", or to a descriptor,
        which is the log's from here on; `format` is a preset or a format with %-codes.
        Raises OSError, and ValueError for a format that cannot be read."""
        self.loop = loop
        self.path = path
        self.line = JsonLine(worker) if format == "json" else FormatLine(format, worker)
        self.wants_fields = self.line.wants_fields
        self.fd = -1
        self.reopen()

    def reopen(self):
        """Opens the path anew: the file may have been moved away."""
        self.flush()
        if isinstance(self.path, int):
            if self.fd >= 0:
                return
            fd = self.path
        elif self.path == "-":
            fd = 1
        else:
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC,
                         0o640)
        if self.fd > 2:
            os.close(self.fd)
        self.fd = fd
        self.is_file = stat.S_ISREG(os.fstat(fd).st_mode)

    def flush(self):
        """Writes what is there, as far as the log takes it without waiting."""
        cdef size_t done = 0
        cdef size_t piece
        cdef ssize_t r
        while done < self.n and self.fd >= 0:
            piece = self.n - done
            if not self.is_file:
                if not can_write(self.fd):
                    break
                piece = whole_lines(self.buffer + done, piece)
            r = write(self.fd, self.buffer + done, piece)
            if r <= 0:
                break
            done += r
        if done:
            self.n -= done
            memmove(self.buffer, self.buffer + done, self.n)

    def close(self):
        self.flush()
        if self.fd > 2:
            os.close(self.fd)
        self.fd = -1

    def _flush_later(self):
        self.scheduled = False
        self.flush()
        if self.n and self.fd >= 0:
            self._schedule()

    def _schedule(self):
        self.scheduled = True
        self.loop.call_later(FLUSH_MS / 1000, self._flush_later)

    cdef int write(self, Client c, int outcome) except -1:
        cdef char *end
        if self.n > FLUSH_AT:
            self.flush()
            if self.n > BUFFER - MOST_LINE:
                self.dropped += 1
                return 0
        end = self.buffer + self.n
        end = self.line.put(
            end, c, outcome, end + (MOST_LINE if self.is_file else ATOMIC) - 1)
        end[0] = b"\n"
        self.n = end + 1 - self.buffer
        self.lines += 1
        if not self.scheduled:
            self._schedule()
        return 0

    cdef int note_head(self, Client c, const Head *head, const char *data) except -1:
        return self.line.note_head(c, head, data)


cdef bint can_write(int fd) noexcept:
    cdef pollfd one
    one.fd = fd
    one.events = POLLOUT
    one.revents = 0
    return poll(&one, 1, 0) == 1 and one.revents & POLLOUT


cdef size_t whole_lines(const char *data, size_t n) noexcept:
    """How many of these bytes are whole lines that fit one atomic write."""
    cdef size_t end = ATOMIC if n > ATOMIC else n
    cdef size_t i = end
    while i > 0 and data[i - 1] != b"\n":
        i -= 1
    return i if i > 0 else end
