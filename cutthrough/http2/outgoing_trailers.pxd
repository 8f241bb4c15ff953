"""The trailers of our message, lines of HTTP/1.1 -> fields of HTTP/2."""

from cutthrough.http2.stream cimport Stream

# Ends our message with the lines in st.part, which is freed. False: no memory.
cdef bint submit_trailers(Stream *st) noexcept nogil
