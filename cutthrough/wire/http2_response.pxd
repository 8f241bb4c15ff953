"""The fields of an HTTP/2 response -> the head of HTTP/1.1 that says the same."""

from libc.stdint cimport uint8_t, uint16_t

cdef struct Http2Response:
    uint16_t status
    uint8_t is_chunked          # a body follows whose length the head does not give

# `records`: as put_field writes them. Writes the head; that of a final response has
# `Connection: close`, because a stream has one response. `method`: the Method of the request;
# `ends`: the stream ends with this head. Returns its length; 0: no room; -1: the response is
# malformed. *about is complete only if > 0 is returned.
cdef int build_response_of_http2(char *out, size_t room, const char *records, size_t n,
                                 int method, bint ends, Http2Response *about) noexcept nogil
