"""How long is the body? RFC 9112 section 6.3, without repair (R5, R7, R8, R11, R17, R18)."""

from libc.stdint cimport int64_t
from cutthrough.wire.http1 cimport Head

cdef enum BodyKind:
    BODY_NONE = 0
    BODY_LENGTH             # exactly `length` bytes, > 0
    BODY_CHUNKED
    BODY_UNTIL_CLOSE        # responses only

cdef struct Framing:
    int kind                # BodyKind
    int64_t length          # BODY_LENGTH: bytes; else 0
    bint persistent         # may the connection carry another message after this one?
    bint trailers           # BODY_CHUNKED: may its trailers be sent on?
    bint contradicts        # of a response: its length fields must not be sent on

# Both return 0, or minus the Outcome of the refusal. `request_method` is the Method that the
# response answers. Content-Length: 0 is BODY_NONE. A 1xx is BODY_NONE too; the caller knows
# from head.status that another head follows.
cdef int read_request_framing(const Head *head, const char *buf, Framing *out) noexcept nogil
cdef int read_response_framing(const Head *head, const char *buf, int request_method,
                               Framing *out) noexcept nogil

# Does Connection name a field that may come as a trailer? Then neither the trailers of this
# message nor its Trailer field are sent on (RFC 9110 section 7.6.1).
cdef bint names_trailers(const Head *head, const char *buf) noexcept nogil
# 1*DIGIT, at most INT64_MAX, leading zeros allowed; -1: anything else (R11).
cdef int64_t parse_length(const char *p, size_t n) noexcept nogil
