"""The carrier of a connection's bytes: the kernel's socket, or a transport above it.

The inline functions of sysio serve a `Socket` of kind KERNEL. Every other kind is a row in a
table of functions: TLS, also if the kernel makes its records, and a stream of HTTP/2. A pump
treats them all alike, except that it checks if bytes may be spliced or peeked.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t

cdef extern from "<errno.h>" nogil:
    # Errno of a recv: a server's FIN behind a whole record, and no close_notify before it
    int UNFINISHED "ENODATA"
    # … and a server's alerts about our certificate: we have none, or it does not accept ours
    int WANTS_CERTIFICATE "ENOKEY"
    int REFUSES_CERTIFICATE "EKEYREJECTED"

cdef enum:
    KERNEL = 0
    TLS = 1                 # see tls; without a row if this build or host has no libssl
    MOST_KINDS = 8
    MOST_GREETING = 16384      # of a ClientHello

# Answers of a handshake that failed; HANDSHAKE_MORE and HANDSHAKE_DONE are no failures.
cdef enum Handshake:
    HANDSHAKE_MORE = 0
    HANDSHAKE_DONE = 1
    HANDSHAKE_CLOSED        # the peer ended its stream
    HANDSHAKE_RESET         # the kernel's socket failed
    HANDSHAKE_INVALID       # not this protocol, or a message that breaks its rules
    HANDSHAKE_UNSHARED      # no version, cipher or protocol in common
    HANDSHAKE_ALERT         # the peer refused
    HANDSHAKE_DENIED        # the peer's certificate is missing or not accepted
    HANDSHAKE_NO_ROOM       # too many handshakes are under way, or no memory
    HANDSHAKE_REJECTED      # the peer refused our certificate
    HANDSHAKE_WANTING       # a server wants one of ours, and we have none
    HANDSHAKE_UNNAMED       # a client names no server, or one that is not served

cdef struct Socket:
    int fd                  # -1: none
    uint8_t ready           # readiness last reported by the kernel or transport: see sysio
    uint8_t kind            # KERNEL, or the number that add_transport returned
    uint16_t slot           # the transport's own

# The result of a handshake. The texts end with NUL unless they have a length, and belong to the
# transport; NULL: none.
cdef struct Agreed:
    int version             # as on the wire: 0x0304 is TLS 1.3
    const char *cipher      # IANA's name of the suite
    const char *name        # the server name that the client sent
    const char *alpn
    unsigned int alpn_len
    bint resumed

# The first ClientHello that `handshake` reads: a whole message, put together
# from its records.
cdef struct Greeting:
    bint is_wanted          # by the caller of `handshake`
    size_t n                # 0: none came in this call, or it is longer than MOST_GREETING
    char data[MOST_GREETING]

# Each function means the same as its namesake in sysio, and sets the same readiness bits.
#
# If a send returns fewer bytes than it was given (or 0), the caller must offer the remaining
# bytes again, possibly with more behind them, or end the connection, because a transport may
# already have begun a record with them.
cdef struct Transport:
    # `context`: a number of the transport's own; `name`: the server to connect to, or if the
    # context makes certificates, the server to speak for; NULL for another side that accepted.
    # 0, or -errno.
    int (*open)(Socket *s, int context, const char *name) noexcept nogil
    # NULL: none. One attempt at what comes before the first byte: HANDSHAKE_DONE,
    # HANDSHAKE_MORE, or minus another Handshake. recv and send are valid after it.
    int (*handshake)(Socket *s) noexcept nogil
    # Bytes that were read from the kernel before `open`, and come first. False: no memory.
    bint (*unread)(Socket *s, const void *data, size_t n) noexcept nogil
    ssize_t (*recv)(Socket *s, void *buf, size_t n) noexcept nogil
    ssize_t (*send)(Socket *s, const void *a, size_t n, const void *b, size_t m) noexcept nogil
    # NULL: never. Makes what the kernel gets of a send that another will make, when the batch ends: as
    # many bytes, in `data` until the next call. 0: not now. Until `note_sent` is called with the
    # kernel's answer, every other function that sends makes that send first.
    size_t (*seal)(Socket *s, const void *a, size_t n, const void *b, size_t m,
                   const char **data) noexcept nogil
    # The kernel took `result` of these bytes, or -errno. Returns how many bytes of the send are lost;
    # what is not is held back.
    size_t (*note_sent)(Socket *s, const char *data, size_t n, ssize_t result) noexcept nogil
    ssize_t (*peek)(Socket *s, void *buf, size_t n) noexcept nogil      # NULL: cannot
    ssize_t (*skip)(Socket *s, size_t n) noexcept nogil                 # peeked bytes
    # NULL: never. True: from now on the kernel has the socket's bytes in plain, in one direction.
    bint (*begin_splice)(Socket *s, bint sends) noexcept nogil
    # Called if a splice from the socket has failed, with -errno. Returns the result for a pump.
    ssize_t (*note_unspliced)(Socket *s, ssize_t failed) noexcept nogil
    int64_t (*untaken)(Socket *s) noexcept nogil
    bint (*holds_back)(Socket *s) noexcept nogil    # bytes or an end not yet in the kernel
    void (*note_events)(Socket *s, unsigned int events) noexcept nogil
    # NULL: it keeps none. The errno with which it has failed, or else the kernel's; 0: none.
    int (*error)(const Socket *s) noexcept nogil
    void (*half_close)(Socket *s) noexcept nogil
    void (*set_abortive)(Socket *s) noexcept nogil
    # NULL: none. The name in the peer's verified certificate: bytes, borrowed; NULL: no name.
    void *(*peer)(const Socket *s) noexcept nogil
    # NULL: none. True: our certificate has gone out whole, and then nothing was there to read.
    bint (*has_shown)(const Socket *s) noexcept nogil
    # NULL: none. False: the handshake is not done.
    bint (*describe)(const Socket *s, Agreed *out) noexcept nogil
    void (*release)(Socket *s) noexcept nogil   # frees its state; the caller closes `fd`

# Returns the number for `Socket.kind`; copies the table. Raises ValueError if the table is full.
cdef int add_transport(const Transport *transport) except -1
# Gives TLS its row.
cdef void set_tls(const Transport *transport) noexcept nogil
# Puts the transport of this number above a kernel socket. 0, or -errno and no change.
cdef int open_transport(Socket *s, int kind, int context, const char *name) noexcept nogil
# Removes the transport; the kernel socket stays open. Does nothing if the kind is KERNEL.
cdef void drop_transport(Socket *s) noexcept nogil
# Of the process: valid until the next call of a handshake.
cdef Greeting *greeting_at_hand() noexcept nogil
# A message of the handshake at hand.
cdef void note_greeting(bint is_read, const void *data, size_t n) noexcept nogil
# The socket's transport; its kind must not be KERNEL.
cdef const Transport *transport_of(const Socket *s) noexcept nogil
