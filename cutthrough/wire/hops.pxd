"""Who else is on the way: Max-Forwards and Via (R20)."""

from libc.stdint cimport int64_t
from cutthrough.wire.http1 cimport Head

cdef enum:
    UNCOUNTED = -1          # no Max-Forwards, or a method that does not count

# How many more proxies may take this request. 0, with *hops, or -BAD_REQUEST.
cdef int read_hops(const Head *head, const char *buf, int64_t *hops) noexcept nogil
# 0, -LOOP_DETECTED where Via names our pseudonym, or -BAD_REQUEST.
cdef int find_loop(const Head *head, const char *buf, const char *pseudonym,
                   size_t pseudonym_len) noexcept nogil
# May this request go no further (Max-Forwards: 0, RFC 9110 section 7.6.2)? OK, or the
# Outcome that answers it; for heads of which build_request_head took the field, and not
# before the request is admitted (R21).
cdef int answer_as_last(const Head *head, const char *buf) noexcept nogil
