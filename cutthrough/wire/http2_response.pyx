# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fields of an HTTP/2 response -> the head of HTTP/1.1 that says the same.

    :status 200  content-type: a/b       HTTP/1.1 200
                                         content-type: a/b
                                         Transfer-Encoding: chunked
                                         Connection: close

A stream's end is the end of its response. A body is chunked if it has no length, because a reset
must be no end of it, and trailers need a place. If the head has a length and announces trailers, which
HTTP/1.1 cannot do, the length is left out: the library compares it with the body. Values may have
controls, all but NUL, CR and LF, as those of HTTP/1.1 may. A response is malformed if HTTP/1.1 would
read it in another way (R62); so is 101, because HTTP/2 does not have it (RFC 9113 section 8.6).
"""

from libc.string cimport memcmp, memmove
from cutthrough.wire.http2_fields cimport (
    Output, Record, is_answered, next_field, next_trimmed, put, put_line, put_text)
from cutthrough.wire.names cimport F_CONTENT_LENGTH, F_TRAILER, M_HEAD, field_name


cdef int build_response_of_http2(char *out, size_t room, const char *records, size_t n,
                                 int method, bint ends, Http2Response *about) noexcept nogil:
    cdef Output to = Output(out, out + room, False)
    cdef const char *p = records
    cdef size_t lengths = 0
    cdef char *length_line = NULL
    cdef size_t length_n = 0
    cdef Record field
    cdef bint has_content
    cdef bint announces = False
    cdef int name
    if n == 0:
        return -1
    p = next_field(p, &field)
    about.is_chunked = False
    about.status = status_of(&field)
    if about.status == 0 or about.status == 101 or (about.status < 200 and ends):
        return -1
    put(&to, b"HTTP/1.1 ", 9)
    put_text(&to, &field.value)
    put(&to, b" \r\n", 3)
    while p < records + n:
        p = next_trimmed(p, &field)
        if not is_answered(&field):         # a pseudo-field is not, either
            return -1
        name = field_name(field.name.data, field.name.n)
        if name == F_CONTENT_LENGTH:
            lengths += 1
            length_line = to.at
        put_line(&to, &field)
        if name == F_CONTENT_LENGTH:
            length_n = to.at - length_line
        announces |= name == F_TRAILER and field.value.n != 0
    if about.status >= 200:
        has_content = method != M_HEAD and about.status != 204 and about.status != 304
        if lengths == 1 and announces and has_content and not ends:
            lengths = 0
            to.at -= length_n
            memmove(length_line, length_line + length_n, to.at - length_line)
        if lengths == 0 and has_content:
            about.is_chunked = not ends
            if ends:
                put(&to, b"Content-Length: 0\r\n", 19)
            else:
                put(&to, b"Transfer-Encoding: chunked\r\n", 28)
        put(&to, b"Connection: close\r\n", 19)
    put(&to, b"\r\n", 2)
    return 0 if to.full else <int>(to.at - out)


cdef int status_of(const Record *field) noexcept nogil:
    """0: it is none."""
    cdef int status = 0
    cdef size_t i
    if field.name.n != 7 or memcmp(field.name.data, b":status", 7) or field.value.n != 3:
        return 0
    for i in range(3):
        if field.value.data[i] < c'0' or field.value.data[i] > c'9':
            return 0
        status = status * 10 + field.value.data[i] - c'0'
    return status if status >= 100 else 0
