"""Rewriting heads: hop-by-hop fields out, Host and Via in (R12, R14, R15, R16)."""

from libc.stdint cimport uint8_t, uint32_t
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.authority cimport Target

cdef enum:
    # A rewritten head is at most this much longer than the one that was read (with a Via
    # pseudonym of at most 64 bytes); a lenient head may grow by one octet more for each
    # field. `cap` must have that room even if this head will not need it.
    REWRITE_ROOM = 512

# Both return bytes written at out, or minus the Outcome if the Connection or Via fields cannot
# be read, or if `cap` is too small (HEAD_TOO_LARGE, RESPONSE_HEAD_TOO_LARGE). The framing must
# have been accepted before.
#
# Request: METHOD origin-form HTTP/1.1; Host from the target, first, without `default_port`;
# every other field as it came, except the hop-by-hop fields and those that Connection names;
# Via appended.
# With `upgrade`, Connection: Upgrade and one Upgrade field are written, without h2c.
# `by_http2`: the head is a stream's of HTTP/2, and Via says so.
# Max-Forwards of OPTIONS and TRACE is decremented; an invalid one is BAD_REQUEST.
# `*path_at` and `*path_len` locate the path in out. LOOP_DETECTED: a Via field names
# `pseudonym` (R20).
cdef int build_request_head(char *out, size_t cap, const Head *head, const char *buf,
                            const Target *target, const char *pseudonym, size_t pseudonym_len,
                            bint upgrade, bint by_http2, int default_port, uint32_t *path_at,
                            uint32_t *path_len) noexcept nogil
# Response: HTTP/1.1 status reason; fields likewise; Via appended. A lenient head is written in
# the strict grammar, and a repeated length once. `options` is a set of ResponseOption. `date`
# is the value of a Date field to add (DATE_BYTES long), NULL: none (RFC 9110 section 6.6.1).
cdef enum ResponseOption:
    ADD_CLOSE = 1           # Connection: close
    KEEP_CHUNKED = 2        # Transfer-Encoding: chunked stays, and no length; else it is dropped
    DROP_LENGTH = 4         # the length fields contradict each other, or the status
    KEEP_UPGRADE = 8        # of a 101: Connection: Upgrade, and the Upgrade field
    BY_HTTP2 = 16           # the head is a stream's of HTTP/2, and Via says so

cdef int build_response_head(char *out, size_t cap, const Head *head, const char *buf,
                             const char *pseudonym, size_t pseudonym_len, int options,
                             const char *date) noexcept nogil
# Does the Upgrade field offer a protocol that may be sent on? h2c may not: the proxy could not
# read the HTTP/2 that follows, and RFC 9113 section 3.1 made it obsolete.
cdef bint offers_upgrade(const Head *head, const char *buf) noexcept nogil
# Does this 101 switch to what `request`, whose head is in `asked`, offered (R4)? Each of its
# protocols must be an offer. Without any it means the only offer, as some servers do.
cdef bint is_offered(const Head *head, const char *buf, const Head *request,
                     const char *request_buf) noexcept nogil
