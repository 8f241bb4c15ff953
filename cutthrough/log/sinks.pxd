"""Targets of log lines: a file or pipe, syslog, the journal. No sink ever waits."""

from cutthrough.session.model.client cimport Client

cdef enum:
    ATOMIC = 4096               # PIPE_BUF: a write up to this size is all or nothing
    MOST_LINE = 8192            # longest line in a file
    MOST_MESSAGE = 16384        # longest line with its header

cdef class LogSink:
    cdef int fd
    cdef size_t most_line       # longest line, with its end
    cdef bint is_framed         # one message per line, behind its length in four bytes
    cdef bint ends_lines        # each line ends in "\n"
    cdef readonly bint can_wait  # the loop can poll the descriptor for room
    cdef readonly size_t lost   # messages that were too long, and dropped
    cdef readonly str error_text  # the error if it takes nothing now; None: no error

    # Writes as many whole lines or messages as it takes now. Returns their bytes.
    cdef size_t send(self, const char *data, size_t n) except? 0
    # Opens the target again. False: that failed, and `error_text` has the error.
    cdef bint try_reopen(self) except -1
    # Writes the message's header at `p` and returns its end.
    cdef char *put_head(self, char *p, Client c, int outcome) except NULL
