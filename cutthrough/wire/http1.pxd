"""Heads of HTTP/1.x messages: bytes -> spans into the caller's buffer.

Strict (R9, R11): one reading or none. Nothing is copied, allocated or changed.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from cutthrough.wire.names cimport N_FIELD_NAMES

cdef enum:
    MAX_FIELDS = 128        # HAProxy's default is 101, Apache's 100, Go's none

cdef enum Version:
    HTTP_10 = 0             # the minor version
    HTTP_11 = 1

cdef struct Field:          # offsets from the start of the buffer
    uint32_t start          # first byte of the name
    uint16_t name_len
    uint8_t name            # FieldName
    uint32_t value          # first byte of the value, white space trimmed on both sides
    uint32_t value_len
    uint32_t end            # one past the line's CRLF

cdef struct Head:
    uint8_t minor           # Version
    uint8_t method          # Method; requests
    uint16_t status         # responses
    uint32_t method_len     # the method starts at offset `start`
    uint32_t target         # requests: request-target. responses: reason phrase
    uint32_t target_len
    uint32_t start          # offset of the start line (1 CRLF before a request is skipped)
    uint32_t fields_start   # offset of the first field line
    uint32_t length         # of the whole head, skipped CRLF and blank line included
    uint16_t n_fields
    uint16_t first[N_FIELD_NAMES]   # index + 1 of the first field of that name, 0: none
    uint16_t count[N_FIELD_NAMES]   # how many fields of that name
    Field fields[MAX_FIELDS]

cdef struct HeadLimits:
    uint32_t line_bytes     # start line, CRLF not counted
    uint32_t head_bytes     # everything up to and including the blank line
    uint32_t n_fields       # at most MAX_FIELDS

# Both return > 0 bytes of head, 0 need more, < 0 minus the Outcome of the refusal.
# `seen` is how many of these n bytes an earlier call has answered 0 for: behind the start
# line, a call that brings no new line end costs only the new bytes. A bad line is refused
# as soon as its bytes show it, not when the head is whole. *head is whole only at > 0.
cdef int parse_request(Head *head, const char *buf, size_t n, size_t seen,
                       const HeadLimits *limits) noexcept nogil
cdef int parse_response(Head *head, const char *buf, size_t n, size_t seen,
                        const HeadLimits *limits) noexcept nogil

# Is `token` (lower case, a C string of `token_len`) a member of the comma list that all
# fields of this name make together? Case-insensitive (R10), list members are tokens.
cdef bint has_token(const Head *head, const char *buf, int name,
                    const char *token, size_t token_len) noexcept nogil
