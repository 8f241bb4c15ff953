"""Sends of separate pieces as one, like writev(2)."""

from cutthrough.net.linux cimport iovec
from cutthrough.net.transport cimport Socket

cdef extern from "<errno.h>" nogil:
    int EOPNOTSUPP

cdef enum:
    MOST_PIECES = 16

# Sends the pieces in their order, at most MOST_PIECES, `n` bytes in all; of 0 bytes it only says if
# the carrier can. Returns as try_send does; -EOPNOTSUPP: it takes only bytes that lie together.
ctypedef ssize_t (*gather_t)(Socket *s, const iovec *pieces, size_t n) noexcept nogil
cdef ssize_t try_gather(Socket *s, const iovec *pieces, size_t n) noexcept nogil
# That of TLS.
cdef void set_gather(gather_t gather) noexcept nogil
