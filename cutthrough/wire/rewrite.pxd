"""Rewriting heads: hop-by-hop fields out, Host and Via in (R12, R14, R15, R16)."""

from libc.stdint cimport uint8_t, uint32_t
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.authority cimport Target

cdef enum:
    # A rewritten head is at most this much longer than the one that was read (with a Via
    # pseudonym of at most 64 bytes); a lenient head may grow by one octet more for each
    # field. `cap` must have that room even if this head will not need it.
    REWRITE_ROOM = 512

# Where a rewritten head goes, and what is written into it. The caller's, on its stack.
cdef struct Writing:
    char *out
    size_t cap              # bytes at out
    const char *pseudonym   # of Via
    size_t pseudonym_len
    int options             # a set of WritingOption

cdef enum WritingOption:
    ADD_CLOSE = 1           # Connection: close
    KEEP_UPGRADE = 2        # Connection: Upgrade, and the Upgrade field, without h2c in requests
    BY_HTTP2 = 4            # the head is a stream's of HTTP/2, and Via says so
    # of responses
    KEEP_CHUNKED = 8        # Transfer-Encoding: chunked stays, and no length; else it is dropped
    DROP_LENGTH = 16        # the length fields contradict each other, or the status

# The place of a path in a head, in bytes.
cdef struct Span:
    uint32_t at
    uint32_t n

# Both return bytes written at out, or minus the Outcome if the Connection or Via fields cannot
# be read, or if `cap` is too small (HEAD_TOO_LARGE, RESPONSE_HEAD_TOO_LARGE). The framing must
# have been accepted before.
#
# Request: METHOD origin-form HTTP/1.1; Host from the target, first, without `default_port`;
# every other field as it came, except the hop-by-hop fields and those that Connection names;
# Via appended.
# Max-Forwards of OPTIONS and TRACE is decremented; an invalid one is BAD_REQUEST.
# `*path` locates the path in out. LOOP_DETECTED: a Via field names the pseudonym (R20).
cdef int build_request_head(const Writing *w, const Head *head, const char *buf,
                            const Target *target, int default_port, Span *path) noexcept nogil
# Response: HTTP/1.1 status reason; fields likewise; Via appended. A lenient head is written in
# the strict grammar, and a repeated length once. `date` is the value of a Date field to add
# (DATE_BYTES long), NULL: none (RFC 9110 section 6.6.1).
cdef int build_response_head(const Writing *w, const Head *head, const char *buf,
                             const char *date) noexcept nogil
# The head of a response as it was read, in the strict grammar: for what keeps heads, because its
# readers split lines at CRLF. Writes at most `regular_bound` bytes, and returns how many.
cdef size_t build_regular_head(const Head *head, const char *buf, char *out) noexcept nogil
cdef inline size_t regular_bound(const Head *head) noexcept nogil:
    return <size_t>head.length + head.n_fields + 4      # CRLF for each LF; and of a short status line
# Does the Upgrade field offer a protocol that may be sent on? h2c may not: the proxy could not
# read the HTTP/2 that follows, and RFC 9113 section 3.1 made it obsolete.
cdef bint offers_upgrade(const Head *head, const char *buf) noexcept nogil
# Does this 101 switch to what `request`, whose head is in `asked`, offered (R4)? Each of its
# protocols must be an offer. Without any it means the only offer, as some servers do.
cdef bint is_offered(const Head *head, const char *buf, const Head *request,
                     const char *request_buf) noexcept nogil
