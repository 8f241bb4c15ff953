"""One log line for one ending, in JSON or by a format."""

from libc.stdint cimport int64_t
from cutthrough.log.text cimport Quote
from cutthrough.net.address cimport Address
from cutthrough.net.transport cimport Socket
from cutthrough.session.model.client cimport Client
from cutthrough.session.transfer.filtering cimport Filtering
from cutthrough.wire.http1 cimport Head

cdef class Line:
    """A line's form. JsonLine and FormatLine implement it."""
    cdef readonly int worker
    cdef readonly bytes heading     # of an empty file; b"": none
    cdef bint wants_fields          # its format has fields of a head that is not kept
    # Writes the line at `p`, without "\n", and returns its end, `last` at most. A value that
    # is too long is cut, and ends in "…".
    cdef char *put(self, char *p, Client c, int outcome, const char *last) except NULL
    # Called instead of `put` if the line is dropped.
    cdef int skip(self, Client c) except -1
    # Keeps fields of a tunnel's head, because the head is released before the end.
    cdef int note_head(self, Client c, const Head *head, const char *data) except -1

# "tunnel" or "request".
cdef const char *kind_of(Client c) noexcept
# The name that a socket has on this host; False: none of IP.
cdef bint own_address(const Socket *s, Address *out) noexcept nogil
# The value of the kept TLV (wire.proxy_header's Tlv); None: there is none.
cdef bytes tlv_of(Client c, int tlv)
# What filters and operators have changed: request, response or both. NULL: neither.
cdef const char *change_of(Filtering f) noexcept
# How long they had its messages, after the request's head.
cdef int64_t held_us_of(Filtering f) noexcept
cdef char *put_method(char *p, Client c) noexcept
# Ends at `last` at most; a cut URL ends in "…".
cdef char *put_url(char *p, Client c, Quote quote, const char *last) except NULL
