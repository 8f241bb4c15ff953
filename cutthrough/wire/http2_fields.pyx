# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fields of an HTTP/2 header block, and lines of HTTP/1.1 that say the same."""

from libc.stdint cimport uint16_t
from libc.string cimport memcpy
from cutthrough.wire.chars cimport CC_TOKEN, CC_VALUE, equals_lower, is_class
from cutthrough.wire.names cimport (
    F_CONNECTION, F_HTTP2_SETTINGS, F_KEEP_ALIVE, F_OTHER, F_PROXY_CONNECTION, F_TE,
    F_TRANSFER_ENCODING, F_UPGRADE, field_name)

cdef enum:
    # Of a connection, not of a request (RFC 9113 section 8.2.2)
    OF_CONNECTION = (1 << F_CONNECTION | 1 << F_PROXY_CONNECTION | 1 << F_KEEP_ALIVE
                     | 1 << F_TRANSFER_ENCODING | 1 << F_UPGRADE | 1 << F_HTTP2_SETTINGS)


cdef size_t put_field(char *out, const char *name, size_t name_len, const char *value,
                      size_t value_len) noexcept nogil:
    cdef uint16_t lengths[2]
    lengths[0] = <uint16_t>name_len
    lengths[1] = <uint16_t>value_len
    memcpy(out, lengths, FIELD_EXTRA)
    memcpy(out + FIELD_EXTRA, name, name_len)
    memcpy(out + FIELD_EXTRA + name_len, value, value_len)
    return FIELD_EXTRA + name_len + value_len


cdef const char *next_field(const char *p, Record *out) noexcept nogil:
    cdef uint16_t lengths[2]
    memcpy(lengths, p, FIELD_EXTRA)
    out.name.data = p + FIELD_EXTRA
    out.name.n = lengths[0]
    out.value.data = out.name.data + lengths[0]
    out.value.n = lengths[1]
    return out.value.data + lengths[1]


cdef void put(Output *out, const char *data, size_t n) noexcept nogil:
    if <size_t>(out.end - out.at) < n:
        out.full = True
        return
    memcpy(out.at, data, n)
    out.at += n


cdef void put_text(Output *out, const Text *text) noexcept nogil:
    put(out, text.data, text.n)


cdef void put_line(Output *out, const Record *field) noexcept nogil:
    put_text(out, &field.name)
    put(out, b": ", 2)
    put_text(out, &field.value)
    put(out, b"\r\n", 2)


cdef const char *next_trimmed(const char *p, Record *out) noexcept nogil:
    cdef const char *next = next_field(p, out)
    cdef Text *value = &out.value
    while value.n and is_space(value.data[0]):
        value.data += 1
        value.n -= 1
    while value.n and is_space(value.data[value.n - 1]):
        value.n -= 1
    return next


cdef bint is_field(const Record *field) noexcept nogil:
    """A regular field of HTTP/2 that is one of HTTP/1.1 (sections 8.2.1 and 8.2.2)."""
    return is_well_formed(field) and is_value(&field.value)


cdef bint is_answered(const Record *field) noexcept nogil:
    cdef size_t i
    cdef char c
    for i in range(field.value.n):
        c = field.value.data[i]
        if c == 0 or c == c'\r' or c == c'\n':
            return False
    return is_well_formed(field)


cdef bint is_value(const Text *value) noexcept nogil:
    cdef size_t i
    for i in range(value.n):
        if not is_class(value.data[i], CC_VALUE):
            return False
    return True


cdef bint is_well_formed(const Record *field) noexcept nogil:
    cdef size_t i
    cdef char c
    cdef int number
    for i in range(field.name.n):
        c = field.name.data[i]
        if not is_class(c, CC_TOKEN) or (c >= c'A' and c <= c'Z'):
            return False
    if field.name.n == 0:
        return False
    number = field_name(field.name.data, field.name.n)
    if number == F_OTHER:
        return True
    if number == F_TE:
        return field.value.n == 8 and equals_lower(field.value.data, b"trailers", 8)
    return not OF_CONNECTION >> number & 1


cdef inline bint is_space(char c) noexcept nogil:
    return c == c' ' or c == c'\t'


cdef int build_trailers_of_http2(char *out, size_t room, const char *records,
                                 size_t n) noexcept nogil:
    cdef Output to = Output(out, out + room, False)
    cdef const char *p = records
    cdef Record field
    while p < records + n:
        p = next_trimmed(p, &field)
        if not is_field(&field):
            return -1
        put_line(&to, &field)
    return -1 if to.full else <int>(to.at - out)
