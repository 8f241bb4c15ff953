"""Where lines go: a file or pipe, syslog, the journal. None ever waits."""

from cutthrough.session.client cimport Client

cdef enum:
    ATOMIC = 4096               # PIPE_BUF: a write up to this is whole, or is not made
    MOST_LINE = 8192            # all that one line can come to, in a file
    MOST_MESSAGE = 16384        # all that a line and what stands before it can come to

cdef class LogSink:
    cdef int fd
    cdef size_t most_line       # with its end
    cdef bint frames            # a message each: its length in four bytes stands before it
    cdef bint is_ended          # by a line's end
    cdef readonly bint can_wait  # the loop may be asked to tell when it takes more
    cdef readonly size_t lost   # messages that it can never take
    cdef readonly str trouble   # why it takes nothing now

    # Takes whole lines or messages, as many as it can now. How many bytes these were.
    cdef size_t send(self, const char *data, size_t n) except? 0
    # Opens it anew. False: that failed, and `trouble` says why.
    cdef bint try_reopen(self) except -1
    # What stands before the line.
    cdef char *put_head(self, char *p, Client c, int outcome) noexcept
