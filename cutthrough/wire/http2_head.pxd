"""The fields of an HTTP/2 request -> the head of HTTP/1.1 that says the same (RFC 9113 section 8)."""

from libc.stdint cimport uint8_t

cdef struct Http2Head:
    uint8_t method              # Method
    uint8_t is_tunnel           # CONNECT: bytes follow, no body
    uint8_t is_chunked          # a body follows whose length the head does not give

# `records`: as put_field writes them. Writes the head, with `Connection: close`, because a stream
# has one request. `ends`: the stream ends with its head. Returns its length; 0: no room; -1: the
# request is malformed. *about is complete only if > 0 is returned, but has the method in any
# case, M_OTHER if there is none.
cdef int build_head_of_http2(char *out, size_t room, const char *records, size_t n, bint ends,
                             Http2Head *about) noexcept nogil
