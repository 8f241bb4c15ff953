"""The error codes of streams that end early."""

from libc.stdint cimport uint32_t
from cutthrough.http2.stream cimport Stream
from cutthrough.net.transport cimport Socket

# Of our answer that is cut.
cdef uint32_t code_of_cut(const Stream *st) noexcept nogil
# Of a stream that its owner leaves before both sides have ended.
cdef uint32_t code_of_release(const Stream *st) noexcept nogil
# As pass_reset of net.multiplex.
cdef bint pass_reset(const Socket *stream, const Socket *to) noexcept nogil
