# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""`traceparent` of W3C Trace Context, level 1: found, and written.

    00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01

A trace, the span of the sender, and flags, of which the lowest bit says that the sender records
it. A value is passed on as it came; this module only says whether it is one (section 3.2).
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcpy
from cutthrough.wire.chars cimport equals_lower


cdef const char *find_trace(const char *head, size_t n, size_t *length) noexcept nogil:
    cdef const char *end = head + n
    cdef const char *line = <const char *>memchr(head, c'\n', n)
    cdef const char *behind
    cdef const char *value = NULL
    length[0] = 0
    while line != NULL and end - line > 1:
        line += 1
        behind = <const char *>memchr(line, c'\n', end - line)
        if behind == NULL:
            break
        if behind - line > 12 and line[11] == c':' and equals_lower(line, b"traceparent", 11):
            if value != NULL:
                return NULL             # of several none is valid (section 3.2.1)
            value = line + 12
            length[0] = behind - value
        line = behind
    if value == NULL:
        return NULL
    while length[0] and (value[length[0] - 1] == c'\r' or is_blank(value[length[0] - 1])):
        length[0] -= 1
    while length[0] and is_blank(value[0]):
        value += 1
        length[0] -= 1
    return value if is_trace(value, length[0]) else NULL


cdef inline bint is_blank(char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef bint is_trace(const char *value, size_t n) noexcept nogil:
    cdef size_t i
    cdef bint has_trace = False, has_span = False
    if n < TRACE_BYTES or n > MOST_TRACE or (n > TRACE_BYTES and value[TRACE_BYTES] != c'-'):
        return False
    for i in range(<size_t>TRACE_BYTES):
        if i == 2 or i == 35 or i == 52:
            if value[i] != c'-':
                return False
        elif not (c'0' <= value[i] <= c'9' or c'a' <= value[i] <= c'f'):
            return False
        elif value[i] != c'0':
            has_trace |= 2 < i < 35
            has_span |= 35 < i < 52
    # ff is no version, and the first one says no more than this
    if value[0] == c'f' and value[1] == c'f' or (
            value[0] == c'0' and value[1] == c'0' and n > TRACE_BYTES):
        return False
    return has_trace and has_span


cdef void print_trace(char *out, const uint64_t *trace, uint64_t span, bint sampled) noexcept nogil:
    memcpy(out, b"00-", 3)
    put_hex(out + 3, trace[0])
    put_hex(out + 19, trace[1])
    out[35] = c'-'
    put_hex(out + 36, span)
    memcpy(out + 52, b"-01" if sampled else b"-00", 3)


cdef inline void put_hex(char *out, uint64_t word) noexcept nogil:
    cdef const char *digits = b"0123456789abcdef"
    cdef int i
    for i in range(16):
        out[i] = digits[(word >> (60 - 4 * i)) & 15]


cdef bytes with_trace(const char *head, size_t n, const char *trace, size_t length):
    cdef size_t there
    if n < 2 or find_trace(head, n, &there) != NULL:
        return None
    return (PyBytes_FromStringAndSize(head, n - 2) + b"traceparent: "
            + PyBytes_FromStringAndSize(trace, length) + b"\r\n\r\n")
