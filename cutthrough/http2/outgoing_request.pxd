"""A request's head, HTTP/1.1 as a session writes it -> HEADERS."""

from cutthrough.http2.stream cimport Stream

# Opens the stream, if the head is whole. Returns its octets; 0: more are needed; -1: HTTP/2 has no
# such request, or there is no memory. `seen`: as of parse_request.
cdef int write_request(Stream *st, const char *text, size_t n, size_t seen) noexcept nogil
