# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""CONNECT to a parent that is an HTTP proxy: the request, and the head of its answer.

    CONNECT 203.0.113.9:443 HTTP/1.1 | Host | Proxy-Authorization | Via
    HTTP/1.1 200 … | fields | empty line | the tunnel's first bytes

The answer's head is read as an origin's response is, within the same bounds. The length that a
2xx announces is ignored (RFC 9110 section 9.3.6).
"""

from libc.string cimport memcpy
from cutthrough.wire.http1 cimport MAX_FIELDS, Head, HeadLimits, parse_response
from cutthrough.wire.authority cimport MAX_HOST, build_authority

cdef enum:
    MOST_INTERIM = 8            # 1xx heads: an answer to CONNECT needs none
    # Request line, Host and names of fields; an authority has MAX_HOST + 9 octets at most
    FIXED_ROOM = 2 * (MAX_HOST + 9) + 80

cdef Head head                  # of the answer being read; used within one call only


cdef size_t build_connect(char *out, size_t cap, const Target *target, Value credentials,
                          Value via) noexcept nogil:
    cdef char authority[MAX_HOST + 9]
    cdef size_t n = build_authority(authority, target, 0)
    cdef char *o = out
    if cap < <size_t>FIXED_ROOM + credentials.n + via.n:
        return 0
    o = put(o, b"CONNECT ", 8)
    o = put(o, authority, n)
    o = put(o, b" HTTP/1.1\r\nHost: ", 17)
    o = put(o, authority, n)
    if credentials.text != NULL:
        o = put(o, b"\r\nProxy-Authorization: ", 23)
        o = put(o, credentials.text, credentials.n)
    if via.text != NULL:
        o = put(o, b"\r\nVia: ", 7)
        o = put(o, via.text, via.n)
    return put(o, b"\r\n\r\n", 4) - out


cdef inline char *put(char *o, const char *text, size_t n) noexcept nogil:
    memcpy(o, text, n)
    return o + n


cdef int read_connect_answer(char *data, size_t n, int *status) noexcept nogil:
    cdef HeadLimits limits
    cdef int length
    cdef int _i
    cdef size_t at = 0
    limits.n_fields = MAX_FIELDS
    for _i in range(MOST_INTERIM + 1):
        limits.line_bytes = limits.head_bytes = <unsigned int>(MOST_CONNECT_ANSWER - at)
        length = parse_response(&head, data + at, n - at, 0, &limits)
        if length < 0:
            return -1
        if length == 0:
            return 0
        at += length
        status[0] = head.status
        if head.status == 101:          # no protocol was offered
            return -1
        if head.status >= 200:
            return <int>at
    return -1
