"""The other proxies on the way: Max-Forwards and Via (R20)."""

from libc.stdint cimport int64_t
from cutthrough.wire.http1 cimport Head

cdef enum:
    UNCOUNTED = -1          # no Max-Forwards, or a method that ignores it

# Sets *hops to the number of proxies that this request may still pass. Returns 0, or
# -BAD_REQUEST.
cdef int read_hops(const Head *head, const char *buf, int64_t *hops) noexcept nogil
# Returns 0, -LOOP_DETECTED if Via names `pseudonym`, or -BAD_REQUEST.
cdef int find_loop(const Head *head, const char *buf, const char *pseudonym,
                   size_t pseudonym_len) noexcept nogil
# Returns the Outcome that answers a request with Max-Forwards: 0 (RFC 9110 section 7.6.2), or
# OK for every other one. Call it after build_request_head, which refuses an invalid field,
# and only for an admitted request (R21).
cdef int answer_as_last(const Head *head, const char *buf) noexcept nogil
