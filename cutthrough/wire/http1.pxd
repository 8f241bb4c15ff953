"""Heads of HTTP/1.x messages: bytes -> spans into the caller's buffer.

Requests are read strictly (R9, R11): one reading or none. Nothing is copied or allocated.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from cutthrough.wire.names cimport N_FIELD_NAMES

cdef enum:
    # HAProxy's default is 101, Apache's 100 for requests; curl takes 5000 in a response
    MAX_FIELDS = 1024

cdef enum Version:
    HTTP_10 = 0             # the minor version
    HTTP_11 = 1

cdef struct Field:          # offsets from the start of the buffer
    uint32_t start          # first byte of the name
    uint16_t name_len
    uint8_t name            # FieldName
    uint32_t value          # first byte of the value, white space trimmed on both sides
    uint32_t value_len
    uint32_t end            # one past the line's end

cdef struct Head:
    uint8_t minor           # Version
    uint8_t method          # Method; requests. M_OTHER if the request line was refused
    uint8_t lenient         # responses: accepted, though it breaks the grammar
    uint8_t is_raw          # requests: the target has octets above 0x7f
    uint16_t status         # responses
    uint32_t method_len     # the method starts at offset `start`
    uint32_t target         # requests: request-target. responses: reason phrase
    uint32_t target_len
    uint32_t start          # offset of the start line, after a skipped empty line
    uint32_t fields_start   # offset of the first field line
    uint32_t length         # bytes of the whole head, skipped CRLF and blank line included
    uint16_t n_fields
    uint16_t first[N_FIELD_NAMES]   # index + 1 of the first field of that name, 0: none
    uint16_t count[N_FIELD_NAMES]   # number of fields of that name
    Field fields[MAX_FIELDS]

cdef struct HeadLimits:
    uint32_t line_bytes     # start line, CRLF not counted
    uint32_t head_bytes     # everything up to and including the blank line
    uint32_t n_fields       # at most MAX_FIELDS

# Both return > 0: bytes of the head, 0: more bytes needed, < 0: minus the Outcome of the
# refusal. `seen` is the number of bytes for which an earlier call returned 0: after the start
# line, a call without a new line end then reads only the new bytes. A bad line is refused with
# the byte that shows it, before the head is whole. *head is complete only if > 0 is returned.
cdef int parse_request(Head *head, const char *buf, size_t n, size_t seen,
                       const HeadLimits *limits) noexcept nogil
# Accepts what real origins send and other proxies pass. Each of these makes the head `lenient`:
# an empty line before the status line, a bare LF as line end (RFC 9112 section 2.2), white space
# before a colon (section 5.1), a version above 1.1 (RFC 9110 section 2.5), and obs-fold, whose
# line end is replaced in buf by spaces (RFC 9112 section 5.2). Control characters but NUL, CR
# and LF in a value do not: every reader finds the same end of it.
cdef int parse_response(Head *head, char *buf, size_t n, size_t seen,
                        const HeadLimits *limits) noexcept nogil
# Does a request with the method HEAD begin here? It matters if a request is refused before its
# head is whole, because a response to HEAD has no content (RFC 9110 section 9.3.2).
cdef bint begins_with_head(const char *buf, size_t n) noexcept nogil

# Is `token` (lower case, of `token_len`) a member of the comma list in the fields of this
# name, taken together? Case-insensitive (R10); the members are tokens.
cdef bint has_token(const Head *head, const char *buf, int name,
                    const char *token, size_t token_len) noexcept nogil
