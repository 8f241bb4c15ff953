"""Records by the kernel (kTLS): a direction of a connection whose keys the kernel has."""

from cutthrough.net.tls.wire cimport Tls
from cutthrough.net.transport cimport Socket

# Gives the kernel one direction of a connection that libssl has left. False: not now, or never.
cdef bint give_receiving(Socket *s, Tls *t) noexcept nogil
cdef bint give_sending(Socket *s, Tls *t) noexcept nogil
# Ends the connection before the kernel's sending key is used too often. To be called now and then.
cdef void check_key(Socket *s, Tls *t) noexcept nogil
# As the transport's functions of these names, if the kernel has the direction.
cdef ssize_t receive_from_kernel(Socket *s, Tls *t, void *buf, size_t n) noexcept nogil
cdef ssize_t send_to_kernel(Socket *s, Tls *t, const char *data, size_t n) noexcept nogil
cdef ssize_t note_unspliced(Socket *s, ssize_t failed) noexcept nogil
# Sends a close_notify, once. False: the kernel may still have bytes before it.
cdef bint end_by_kernel(Socket *s, Tls *t) noexcept nogil
