# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A rewritten request head in absolute form, for a parent that gets the request itself.

    GET /a HTTP/1.1 | Host: b  ->  GET http://b/a HTTP/1.1 | Proxy-Authorization | Host: b

The head itself stays as it is, because a second attempt may go another way.
"""

from libc.string cimport memcpy
from cutthrough.wire.authority cimport MAX_HOST, build_authority

cdef enum:
    FIXED_ROOM = MAX_HOST + 9 + 7 + 23 + 2      # authority, scheme, name of the field, CRLF


cdef size_t build_absolute_head(char *out, size_t cap, const char *head, size_t n,
                                Span path, const Target *target,
                                Value credentials) noexcept nogil:
    cdef char *o = out
    cdef const char *p = head + path.at
    cdef const char *line_end = p + path.n + 11       # behind " HTTP/1.1" and CRLF
    if cap < n + FIXED_ROOM + credentials.n:
        return 0
    o = put(o, head, path.at)
    o = put(o, b"http://", 7)
    o += build_authority(o, target, 80)
    if path.n == 1 and p[0] == c'*':  # OPTIONS * has an empty path (RFC 9112 section 3.2.4)
        p += 1
    o = put(o, p, line_end - p)
    if credentials.text != NULL:
        o = put(o, b"Proxy-Authorization: ", 21)
        o = put(o, credentials.text, credentials.n)
        o = put(o, b"\r\n", 2)
    return put(o, line_end, head + n - line_end) - out


cdef inline char *put(char *o, const char *text, size_t n) noexcept nogil:
    memcpy(o, text, n)
    return o + n
