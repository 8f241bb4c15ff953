"""What a connection's bytes go through: the kernel's socket, or a transport above it.

A `Socket` of kind KERNEL is served by the inline functions of sysio. Every other kind is a
row in a table of functions: TLS without kTLS, a stream of HTTP/2. A pump cannot tell them
apart, except that it asks whether bytes may be spliced or peeked.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t

cdef enum:
    KERNEL = 0
    MOST_KINDS = 8

cdef struct Socket:
    int fd                  # -1: none
    uint8_t ready           # what the kernel, or the transport, last said: see sysio
    uint8_t kind            # KERNEL, or the number that add_transport returned
    uint16_t slot           # the transport's own

# Each has the meaning of its namesake in sysio, and keeps the readiness bits as that does.
#
# A send that returns 0 or fewer bytes than it was given has made promises about the others:
# the caller offers the same bytes again, possibly with more behind them, or ends the
# connection. So a transport may have begun a record with them.
cdef struct Transport:
    int (*open)(Socket *s) noexcept nogil       # what it keeps for `s`: 0, or -errno
    ssize_t (*recv)(Socket *s, void *buf, size_t n) noexcept nogil
    ssize_t (*send)(Socket *s, const void *a, size_t n, const void *b, size_t m) noexcept nogil
    ssize_t (*peek)(Socket *s, void *buf, size_t n) noexcept nogil      # NULL: cannot
    ssize_t (*skip)(Socket *s, size_t n) noexcept nogil                 # what was peeked
    int64_t (*untaken)(Socket *s) noexcept nogil
    bint (*holds_back)(Socket *s) noexcept nogil    # bytes or an end that the kernel has not
    void (*note_events)(Socket *s, unsigned int events) noexcept nogil
    void (*half_close)(Socket *s) noexcept nogil
    void (*set_abortive)(Socket *s) noexcept nogil
    void (*release)(Socket *s) noexcept nogil   # that memory; the caller closes `fd`

# The number for `Socket.kind`; the table is copied. Raises ValueError if there are MOST_KINDS.
cdef int add_transport(const Transport *transport) except -1
# Puts the transport of this number above a kernel's socket. 0, or -errno and no change.
cdef int open_transport(Socket *s, int kind) noexcept nogil
# Takes it off again; the kernel's socket stays open. Nothing happens to one of kind KERNEL.
cdef void drop_transport(Socket *s) noexcept nogil
# Of a kind other than KERNEL.
cdef const Transport *transport_of(const Socket *s) noexcept nogil
