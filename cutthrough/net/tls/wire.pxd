"""Below libssl: the connections of this process, and the socket that libssl's calls go to."""

from libc.stdint cimport uint8_t, uint32_t
from cutthrough.net.linux cimport errno
from cutthrough.net.sends cimport end_unnoticed
from cutthrough.net.tls.openssl cimport SSL
from cutthrough.net.tls.records cimport Records
from cutthrough.net.transport cimport Agreed, Socket

cdef enum:
    # There are bounds of one call's bytes, because a KeyUpdate has 27 bytes and costs 13 us, and a
    # flood would hold up all other connections. A record has 17 KiB at most
    MOST_FRUITLESS = 49152
    MOST_READ = 65536
    SEALED = 255            # Tls.alert: the peer has sent a sealed record

cdef enum Asked:
    NOT_ASKED = 0
    ASKED_IN_VAIN           # we have none
    ASKED_AND_SHOWN

# The state of one connection, from its handshake's first byte to its close.
cdef struct Tls:
    SSL *ssl                # NULL: `records` has taken over
    Records *records        # NULL: libssl keeps the connection
    Agreed *agreed          # set if libssl is gone, with its texts behind it
    void *context           # its TlsContext, of which this holds a reference
    void *peer              # bytes: the name in the peer's certificate; NULL: none
    char *held              # bytes read from the kernel and not yet looked at; NULL: none
    char *out               # the rest of a sealed record, for the kernel; NULL: none
    char *plain             # decrypted bytes that were peeked; NULL: none
    uint32_t held_at, held_n
    uint32_t plain_at, plain_n
    uint32_t out_at, out_n
    uint32_t sealed_n       # records of libssl's sending key, at least as many as there are
    uint32_t begun          # bytes of the record that the kernel has not taken whole; 0: none
    int error               # errno of the end of both directions: a failure of TLS, or of a read
    int send_error          # errno of a send: nothing goes any more, and reads go on; 0: none
    uint8_t shaking         # the handshake is not done
    uint8_t dry             # the kernel had fewer bytes than a read of this call wanted
    uint8_t peer_ended
    uint8_t ends, ended     # our close_notify: due, sent
    uint8_t abortive
    uint8_t crossed         # a read waits for room to write
    uint8_t recrossed       # a write waits for bytes to read
    uint8_t messages        # of handshakes that came after the handshake, as far as it counts
    uint8_t looks           # at the kernel's sending key: see `kernel`
    uint8_t offered         # a session was, to be resumed
    uint8_t expects_tickets     # of TLS 1.3, that only libssl can keep
    uint8_t kernel          # what the kernel has of the connection: see `ulp`; 0: nothing
    uint8_t closed          # the peer has ended its stream; known without libssl
    uint8_t notified        # our close_notify or a fatal alert is sealed; the same
    uint8_t shows, shown    # our certificate: in a message, in the kernel
    uint8_t alert           # a client's in clear, where libssl cannot read it; 0: none; SEALED
    uint8_t asked           # by a server, for our certificate: Asked
    uint8_t waits           # a sealed record does, for the end of a batch: see `note_sent`
    uint8_t connects        # our side has connected: not counted as a listener's

# Nothing more can be sent.
cdef inline bint has_failed(const Tls *t) noexcept nogil:
    return t.error or t.send_error

# The socket's state; NULL: no handshake has begun.
cdef Tls *tls_of(const Socket *s) noexcept nogil
# Makes the state of a socket whose `slot` is a context's number. NULL: no memory, or too many
# handshakes of listeners are under way.
cdef Tls *begin(Socket *s, bint connects) noexcept nogil
# The connection leaves libssl, or stays in it.
cdef void free_ssl(Tls *t) noexcept nogil
cdef void free_records(Tls *t) noexcept nogil
# Keeps a copy of bytes that libssl is to read first. False: no memory.
cdef bint hold(Tls *t, const void *data, size_t n) noexcept nogil
cdef void drop(Socket *s, Tls *t) noexcept nogil
# The errno of an end that the kernel reports to a read. It reports a reset once: if a send has met
# it, a read sees an end. EPIPE tells of no reset. 0: an end it is.
cdef int errno_of_end(const Tls *t) noexcept nogil
# By errno, of a send. A peer that is not told would wait for ever, and we for it.
cdef inline void note_failed_send(const Socket *s, Tls *t) noexcept nogil:
    t.send_error = errno
    end_unnoticed(s.fd, t.send_error)

# Before each call of libssl: its input and output go to this socket.
cdef void take_up(Socket *s, Tls *t) noexcept nogil
# A call of libssl has returned plain bytes: is it another turn's to read more?
cdef bint has_read_enough() noexcept nogil
# The handshake is done: counts it, and sends the tickets that wait for it.
cdef void note_done(Tls *t) noexcept nogil
# The listener's handshake of this socket was a trial: it does not count.
cdef void uncount(const Socket *s) noexcept nogil
cdef bint has_context(int number) noexcept nogil
# Do connections of this context have a certificate made for a name?
cdef bint makes_leaves(int number) noexcept nogil
# Our certificate went out before the peer's next bytes or its end came.
cdef bint has_shown(const Socket *s) noexcept nogil
# Has a connection that `begin` made show one. False: it cannot.
cdef bint speak_for(Tls *t, const char *name) noexcept nogil
