"""A connection of HTTP/2: the library's session, and what a peer's frames do."""

from libc.stdint cimport int64_t
from cutthrough.http2.stream cimport Demux
from cutthrough.net.multiplex cimport Bounds
from cutthrough.net.transport cimport Socket

# The connection of this carrier; NULL: it has none.
cdef Demux *demux_of(const Socket *carrier) noexcept nogil
cdef Demux *make_demux(Socket *carrier, const Bounds *bounds, int64_t now_us) noexcept nogil
# Its streams are left without a connection.
cdef void free_demux(Demux *d) noexcept nogil
# Feeds the library. A Heard.
cdef int feed(Demux *d, const char *data, size_t n) noexcept nogil
# Whether the connection goes on: HEARD_ALL, or the Heard that it has come to.
cdef int state_of(Demux *d) noexcept nogil
# The streams with an owner, or that wait for one, became one less.
cdef void count_down(Demux *d) noexcept nogil
