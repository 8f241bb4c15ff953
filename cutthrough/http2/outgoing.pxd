"""The bytes of our message, HTTP/1.1 as a session writes it -> frames: an answer, or a request."""

from cutthrough.http2.stream cimport Stream

# As try_send2: octets taken, 0 if the stream is full, or -errno.
cdef ssize_t write_message(Stream *st, const char *a, size_t n, const char *b,
                           size_t m) noexcept nogil
