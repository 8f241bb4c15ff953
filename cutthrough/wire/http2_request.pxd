"""The fields of an HTTP/2 request -> the head of HTTP/1.1 that says the same (RFC 9113 section 8)."""

from libc.stdint cimport int64_t, uint8_t

cdef enum Http2Refusal:
    HEAD_MALFORMED = -1         # no request of HTTP/2: costs the stream
    HEAD_INVALID = -2           # may be answered: 400
    HEAD_EXTENDED = -3          # extended CONNECT, which is not offered here: 501

cdef struct Http2Request:
    uint8_t method              # Method
    uint8_t is_tunnel           # CONNECT: bytes follow, no body
    uint8_t is_chunked          # a body follows whose length the head does not give
    int64_t length              # that the head gives; -1: none, or an invalid one

# `records`: as put_field writes them. Writes the head, with `Connection: close`, because a stream
# has one request. `ends`: the stream ends with its head. Returns its length; 0: no room; or a
# Http2Refusal. *about is complete only if > 0 is returned, but has the method in any case, M_OTHER
# if there is none.
cdef int build_request_of_http2(char *out, size_t room, const char *records, size_t n, bint ends,
                                Http2Request *about) noexcept nogil
