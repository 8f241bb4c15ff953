"""The carrier of a connection's bytes: the kernel's socket, or a transport above it.

The inline functions of sysio serve a `Socket` of kind KERNEL. Every other kind is a row in a
table of functions: TLS without kTLS, a stream of HTTP/2. A pump treats them all alike, except
that it checks if bytes may be spliced or peeked.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t

cdef enum:
    KERNEL = 0
    MOST_KINDS = 8

cdef struct Socket:
    int fd                  # -1: none
    uint8_t ready           # readiness last reported by the kernel or transport: see sysio
    uint8_t kind            # KERNEL, or the number that add_transport returned
    uint16_t slot           # the transport's own

# Each function means the same as its namesake in sysio, and sets the same readiness bits.
#
# If a send returns fewer bytes than it was given (or 0), the caller must offer the remaining
# bytes again, possibly with more behind them, or end the connection. So a transport may
# already have begun a record with them.
cdef struct Transport:
    int (*open)(Socket *s) noexcept nogil       # allocates its state for `s`: 0, or -errno
    ssize_t (*recv)(Socket *s, void *buf, size_t n) noexcept nogil
    ssize_t (*send)(Socket *s, const void *a, size_t n, const void *b, size_t m) noexcept nogil
    ssize_t (*peek)(Socket *s, void *buf, size_t n) noexcept nogil      # NULL: cannot
    ssize_t (*skip)(Socket *s, size_t n) noexcept nogil                 # peeked bytes
    int64_t (*untaken)(Socket *s) noexcept nogil
    bint (*holds_back)(Socket *s) noexcept nogil    # bytes or an end not yet in the kernel
    void (*note_events)(Socket *s, unsigned int events) noexcept nogil
    void (*half_close)(Socket *s) noexcept nogil
    void (*set_abortive)(Socket *s) noexcept nogil
    void (*release)(Socket *s) noexcept nogil   # frees its state; the caller closes `fd`

# Returns the number for `Socket.kind`; copies the table. Raises ValueError if the table is full.
cdef int add_transport(const Transport *transport) except -1
# Puts the transport of this number above a kernel socket. 0, or -errno and no change.
cdef int open_transport(Socket *s, int kind) noexcept nogil
# Removes the transport; the kernel socket stays open. Does nothing if the kind is KERNEL.
cdef void drop_transport(Socket *s) noexcept nogil
# The socket's transport; its kind must not be KERNEL.
cdef const Transport *transport_of(const Socket *s) noexcept nogil
