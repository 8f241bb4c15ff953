# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Sends of separate pieces as one, like writev(2).

Frame headers of HTTP/2 stand between parts of a body elsewhere in memory. Because TLS reads plain bytes
once, to seal them, it takes the pieces in place: no copy puts them together first.
"""

from libc.string cimport memset
from cutthrough.net.linux cimport msghdr
from cutthrough.net.sysio cimport try_kernel_message
from cutthrough.net.transport cimport KERNEL, TLS

cdef gather_t of_tls = NULL


cdef void set_gather(gather_t gather) noexcept nogil:
    global of_tls
    of_tls = gather


cdef ssize_t try_gather(Socket *s, const iovec *pieces, size_t n) noexcept nogil:
    if s.kind == TLS and of_tls != NULL:
        return of_tls(s, pieces, n)
    if s.kind != KERNEL:
        return -EOPNOTSUPP
    return gather_kernel(s, pieces, n) if n else 0


cdef ssize_t gather_kernel(Socket *s, const iovec *pieces, size_t n) noexcept nogil:
    cdef msghdr message
    cdef size_t summed = 0
    memset(&message, 0, sizeof(message))
    message.msg_iov = <iovec *>pieces
    while summed < n:
        summed += pieces[message.msg_iovlen].iov_len
        message.msg_iovlen += 1
    return try_kernel_message(s, &message, n)
