"""Connections whose bytes are streams: the seam of HTTP/2.

A carrier is a connection that has streams; each stream is a transport of its own. The multiplexer
is a row of functions, as a transport is, because it needs a library that this build or host may not
have.
"""

from libc.stdint cimport int64_t, uint32_t
from cutthrough.net.buffers cimport Block
from cutthrough.net.transport cimport KERNEL, Socket

cdef extern from "<errno.h>" nogil:
    # Errno of a stream that was reset here, because its peer broke the rules for streams
    int STREAM_BROKE_RULES "EPROTO"
    # … and of one whose connection was ended for such a reason
    int PEER_BROKE_RULES "EBADMSG"
    # … or because nothing came in time
    int PEER_SILENT "ETIME"

# The result of reading a carrier.
cdef enum Heard:
    HEARD_ALL = 0           # nothing more now
    HEARD_SOME              # its turn is over, there is more to read
    HEARD_END               # the peer ended the connection
    HEARD_RESET             # the kernel's socket failed
    HEARD_FAULT             # the peer broke the protocol's rules
    HEARD_RESETS            # it reset too many streams
    HEARD_FLOOD             # it sent too many frames that do nothing
    HEARD_HEADERS           # a header block has too many frames or octets
    HEARD_NO_ROOM           # no memory
    HEARD_LATE              # nothing of the peer came in time

# Why a stream that has come is not to be served.
cdef enum Refusal:
    REFUSED_NOT = 0
    REFUSED_MALFORMED       # the stream was reset already
    REFUSED_TOO_LARGE       # its head; it may be answered
    REFUSED_NO_ROOM         # no memory for its head; the same
    REFUSED_INVALID         # a value, or the target; the same
    REFUSED_EXTENDED        # it is an extended CONNECT; the same

# What a carrier is to be.
cdef struct Bounds:
    uint32_t streams        # open at a time
    uint32_t head_bytes     # of a head that the peer sends
    bint asks               # the streams are opened here, for requests; the peer answers
    bint has_print          # the fingerprint of a client's first frames is wanted

# A stream with something to do: its endpoint, or one that has come and has none yet.
cdef struct Due:
    void *owner             # NULL: it has none, and `sock` is its socket, without a descriptor
    Socket sock
    int refusal             # Refusal; of a stream that has come
    int method              # Method of its request

cdef struct Multiplexer:
    int kind                # of the streams, as transports
    # The carrier's handshake has agreed on streams.
    bint (*is_agreed)(const Socket *carrier) noexcept nogil
    # False: no memory.
    bint (*begin)(Socket *carrier, const Bounds *bounds, int64_t now_us) noexcept nogil
    # Reads for one turn. A Heard. Until `speak`, nothing is written if it can be avoided.
    int (*hear)(Socket *carrier, int64_t now_us) noexcept nogil
    # The next stream with something to do. False: there is none.
    bint (*next_due)(Socket *carrier, Due *out) noexcept nogil
    # The fingerprint of the client's first frames, valid until the next call; `n`: its octets.
    # NULL: nobody wanted it, or it was taken.
    const char *(*take_print)(Socket *carrier, size_t *n) noexcept nogil
    # Whether `next_due` has one: a write to another stream may end one's wait.
    bint (*is_due)(const Socket *carrier) noexcept nogil
    # Whether the peer takes one more request at once.
    bint (*has_room)(const Socket *carrier) noexcept nogil
    # How many requests at a time both sides take.
    uint32_t (*most)(const Socket *carrier) noexcept nogil
    # Opens a stream for one request: *out is its socket, without a descriptor, to be adopted.
    # A stream beyond the peer's bound takes its head, and waits. False: no memory, or the
    # connection has no more streams.
    bint (*ask)(Socket *carrier, Socket *out) noexcept nogil
    # Whether the peer says that it has not read the stream's request; the stream has ended then.
    bint (*is_unread)(const Socket *stream) noexcept nogil
    # If the peer has reset the stream and its code says more than that the answer is not whole (it
    # was cancelled, or was too much), the other stream ends with that code when it is cut. False: it
    # does not say more.
    bint (*pass_reset)(const Socket *stream, const Socket *to) noexcept nogil
    # All bytes of a request with a body that the stream has taken: the caller's from now on.
    # NULL: there were too many, or the peer has begun to answer.
    Block *(*give_sent)(Socket *stream) noexcept nogil
    # Octets of the carrier, ever, that its peer has taken while the stream's own could not go out
    # for them; two looks are needed to see any. Adds those that it has not taken to *left.
    int64_t (*taken_before)(const Socket *stream, int64_t *left) noexcept nogil
    # The carrier of a stream; NULL: it has ended.
    const Socket *(*carrier_of)(const Socket *stream) noexcept nogil
    # The endpoint of a stream that has come; it holds the stream's socket from now on.
    void (*adopt)(Socket *stream, void *owner) noexcept nogil
    # Writes what has been said since `hear`; more streams may be due then. A Heard: HEARD_ALL if
    # the connection goes on.
    int (*speak)(Socket *carrier) noexcept nogil
    # Streams that are open.
    uint32_t (*count)(const Socket *carrier) noexcept nogil
    # Whether something that was said is still to go out, or a stream is open: the carrier has not
    # taken it, or the peer's window has no room for the end of an answer.
    bint (*holds)(const Socket *carrier) noexcept nogil
    # Since when it has no stream; 0: it has some.
    int64_t (*idle_since_us)(const Socket *carrier, int64_t now_us) noexcept nogil
    # When its incomplete header block, or its preface, began; 0: there is none.
    int64_t (*awaits_since_us)(const Socket *carrier) noexcept nogil
    # The peer is to begin no more streams: the first call reports it, the second one that later
    # streams are not served; a third one does nothing.
    void (*drain)(Socket *carrier) noexcept nogil
    # All streams have failed: `next_due` returns each of them. `why`: the Heard that is sent to the
    # peer; HEARD_ALL: a regular end; HEARD_RESET: nothing is sent.
    void (*lose)(Socket *carrier, int why) noexcept nogil
    # Frees its state; the carrier is a plain connection again, and only to be closed.
    void (*end)(Socket *carrier) noexcept nogil

cdef void set_multiplexer(const Multiplexer *row) noexcept nogil
# NULL: there is none.
cdef const Multiplexer *multiplexer() noexcept nogil


# The kind of streams' sockets; KERNEL: there is no multiplexer.
cdef int stream_kind

cdef inline bint is_stream(const Socket *s) noexcept nogil:
    return s.kind != KERNEL and s.kind == stream_kind


# The socket whose descriptor has the connection's addresses: a stream's carrier, or itself.
cdef const Socket *with_descriptor(const Socket *s) noexcept nogil
