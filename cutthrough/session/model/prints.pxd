"""The fingerprints of a connection's client: of its SYN, its ClientHello and its HTTP/2."""

# Those that are wanted, as bits. The first two are wire.openings' Fingerprint.
cdef enum Print:
    P_JA4 = 1
    P_JA3 = 2
    P_JA4_R = 4
    P_JA4_O = 8
    P_JA4_RO = 16
    P_HTTP2 = 32

# Of one connection, made at its handshake, and shared by its requests. None: not wanted, or not
# known. All are printable ASCII without a quote, and bounded.
cdef class Prints:
    cdef readonly bytes ja4
    cdef readonly bytes ja3
    cdef readonly bytes ja4_r
    cdef readonly bytes ja4_o
    cdef readonly bytes ja4_ro
    cdef readonly bytes http2
    cdef readonly bytes tcp
    cdef bint is_greeted            # its handshake has come: those of TLS are as they will be

    # What the kernel has kept of the SYN of a connection that was accepted from a listener which
    # keeps them. If it has kept none, nothing is known.
    cdef int read_syn(self, int fd) except -1
    # `hello`: a handshake message. If it is no ClientHello, nothing is known.
    cdef int read_hello(self, const char *hello, size_t n, int wanted) except -1
