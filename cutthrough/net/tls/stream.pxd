"""A connection's bytes behind its handshake, without libssl: from records, and into them."""

from cutthrough.net.tls.records cimport Opened
from cutthrough.net.tls.wire cimport Tls
from cutthrough.net.transport cimport Socket

# Puts the connection's own records in libssl's place, and frees libssl's object. False: it stays.
# Its handshake must be done, and no record may be under way.
cdef bint take_over(Tls *t) noexcept nogil
# As the transport's functions of these names; `t` has no libssl any more.
cdef ssize_t receive_records(Socket *s, Tls *t, void *buf, size_t n) noexcept nogil
cdef ssize_t send_records(Socket *s, Tls *t, const char *data, size_t n) noexcept nogil
# As the transport's `seal` and `note_sent`. At most one record.
cdef size_t seal_later(Socket *s, const void *a, size_t n, const void *b, size_t m,
                       const char **data) noexcept nogil
cdef size_t note_sent(Socket *s, const char *data, size_t n, ssize_t result) noexcept nogil
# Sends the bytes that the kernel has not taken. False: it has not taken all.
cdef bint flush_records(Socket *s, Tls *t) noexcept nogil
# Sends a close_notify, once. False: the kernel has not taken it.
cdef bint end_records(Socket *s, Tls *t) noexcept nogil
# Keeps plain bytes for the next read. False: no memory.
cdef bint keep_plain(Tls *t, const unsigned char *data, size_t n) noexcept nogil
# The effect of a message of the peer: an end, an error, an alert.
cdef void obey(Socket *s, Tls *t, Opened opened) noexcept nogil
# Ends the connection with a fatal alert.
cdef void fail(Socket *s, Tls *t, int alert) noexcept nogil
# As the transport's `error`.
cdef int error_of(const Socket *s) noexcept nogil
