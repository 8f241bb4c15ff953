"""A stream of HTTP/2 and its connection: the state of each, and the bytes of the peer's message.

The peer is a client, and its messages are requests; or it is an origin, and they are responses.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cutthrough.http2.fingerprint cimport Print
from cutthrough.http2.meter cimport Meter
from cutthrough.http2.nghttp2 cimport nghttp2_session
from cutthrough.net.buffers cimport Block
from cutthrough.net.transport cimport Socket

# The lists of a connection that a stream can be in.
cdef enum:
    OPEN = 0                # all of them
    DUE                     # something is to be done by the owner, or it has no owner yet
    STUCK                   # its bytes were not all taken
    N_LISTS

cdef enum:
    JUST_NOW = 1

# How far our message has come, an answer or a request. The session speaks HTTP/1.1; see message.
cdef enum Message:
    MESSAGE_HEAD = 0
    MESSAGE_LENGTH           # `left` octets of a body
    MESSAGE_CHUNKS           # a chunked body; `step` and `left` are the place in it
    MESSAGE_OPEN             # until the end: a tunnel, or a body without a length
    MESSAGE_DONE

cdef struct Link:
    Stream *next
    Stream *before

cdef struct Queue:
    Stream *first
    Stream *last

cdef struct Stream:
    Demux *demux            # NULL: the connection has ended
    void *owner             # the endpoint; NULL: not adopted yet, or closed
    Socket *sock            # of the owner; NULL: as above
    Link links[N_LISTS]
    Block *records          # fields of a header block that is not whole
    Block *head             # of the peer's message in HTTP/1.1, or the framing that comes next
    Block *input            # octets of the body, without framing; others behind it by `next`
    Block *last_input       # the last of them
    Block *trailers         # lines of the trailer section
    Block *part             # a part of our head, or of our trailers
    Block *tail             # octets of our message that were taken and are in no frame yet
    Block *sent             # all octets of our request that were taken; NULL: see keeps
    const char *piece       # octets offered by the call at hand; NULL: none
    size_t piece_n
    uint64_t left           # of our body or chunk
    uint32_t chunk_left     # octets of the chunk that is being read
    uint32_t excess         # octets of fields that are not kept, because there are too many
    int64_t due_octets      # of the request's body, by its Content-Length; -1: it has none
    int64_t untaken_before  # octets that the carrier's peer had not taken at the last look
    int64_t taken_before    # see Multiplexer
    uint64_t since_grown    # octets read since the window grew
    uint32_t window         # ours: most octets that the peer may send before any is read
    int error               # errno of reads and writes; 0: none
    uint32_t reset_code     # of the peer's RST_STREAM; 0: none, or NO_ERROR
    uint32_t end_code       # of ours, in place of INTERNAL_ERROR; 0: none
    int32_t id
    uint16_t slot
    uint8_t framing[12]     # of chunks; begins at framing_at
    uint8_t framing_at, framing_n
    uint8_t listed          # bits of the lists it is in
    uint8_t method          # Method of the request
    uint8_t refusal         # Refusal
    uint8_t too_large       # the header block has more fields than are kept
    uint8_t malformed
    uint8_t is_whole        # the peer's (final) head has come
    uint8_t is_tunnel
    uint8_t is_chunked
    uint8_t peer_ended
    uint8_t last_read       # the last chunk and the trailers were put in the way of reads
    uint8_t message         # Message
    uint8_t step            # of a chunked message
    uint8_t provides        # the library reads its data from here
    uint8_t piece_ends      # it ends with the octets at hand
    uint8_t ends            # our end is due when tail and piece are in frames
    uint8_t ended           # our end is in a frame
    uint8_t end_out         # that frame has been written
    uint8_t crowded         # its octets found no room in `out`
    uint8_t abortive
    uint8_t is_gone         # the library has closed it
    uint8_t released        # its owner has closed it
    uint8_t waits           # our request is in no frame yet
    uint8_t unread          # the peer has not read our request
    uint8_t keeps           # `sent`, because it has a body, is short, and has no answer yet

cdef struct Demux:
    nghttp2_session *session
    Socket *carrier
    Meter meter
    Block *out              # frames that the carrier has not taken
    Queue lists[N_LISTS]
    int32_t newest          # stream of a client that was begun
    int32_t skipped, resumed    # streams between these were not begun, the last time that any was
    uint32_t n_open         # streams with an owner, or that wait for one
    uint32_t n_waiting      # requests that the peer has no room for
    uint32_t most_streams
    uint32_t most_records
    int64_t now_us
    int64_t idle_us         # since when n_open is 0; 0: it is not; JUST_NOW: not looked at
    int error               # errno of the carrier: it is lost
    int send_error          # errno of a send: frames go nowhere, and reads go on; 0: none
    uint8_t asks            # the streams are ours
    uint8_t held            # nothing is written before `speak`
    uint8_t stuck           # the carrier takes no more
    uint8_t crowded         # the last octets of some streams found no room in it
    uint8_t wakes_stuck     # it has taken all since: streams that are STUCK may go on
    uint8_t drained         # steps of the drain that were taken
    uint8_t over            # one side has said that there are no more streams
    Print *print            # NULL: nobody wants it, or it was taken
    uint8_t flooded         # a Heard; HEARD_ALL: not yet
    uint8_t is_late         # `out` is sent at the end of the batch: see frames
    Demux *next_late

# A stream of this connection, in a slot; NULL: no memory, or no slot.
cdef Stream *make_stream(Demux *demux, int32_t id) noexcept nogil
# Frees it: out of all lists and of its slot.
cdef void free_stream(Stream *st) noexcept nogil
cdef void free_slot(Stream *st) noexcept nogil
# Frees the octets of the body that are kept.
cdef void give_input(Stream *st) noexcept nogil
# The stream of this socket; NULL: none.
cdef Stream *stream_of(const Socket *s) noexcept nogil
cdef int count_streams() noexcept nogil

cdef void enlist(Stream *st, int which) noexcept nogil
cdef void delist(Stream *st, int which) noexcept nogil
cdef void remove_from(Demux *demux, Stream *st, int which) noexcept nogil

# Its owner has something to do: bits of sysio's readiness become true.
cdef void make_due(Stream *st, int ready) noexcept nogil
# It was reset, or its connection has ended.
cdef void break_stream(Stream *st, int error) noexcept nogil
# The errno of streams whose connection is lost. `why`: a Heard.
cdef int error_of_loss(const Demux *d, int why) noexcept nogil

# --- the bytes of the peer's message

cdef void keep_field(Stream *st, const char *name, size_t n, const char *value,
                     size_t m) noexcept nogil
# The header block is whole; `ends`: the stream, too. `refusal` says what is wrong with it.
cdef void finish_head(Stream *st, bint ends) noexcept nogil
# The same of a response, interim or final. False: it is malformed, too large, or no memory.
cdef bint finish_response(Stream *st, bint ends) noexcept nogil
cdef bint finish_trailers(Stream *st) noexcept nogil
cdef bint keep_data(Stream *st, const char *data, size_t n) noexcept nogil
# The peer's end: after all bytes that have come.
cdef void note_end(Stream *st) noexcept nogil
# As try_recv and try_peek. `taken`: octets of the window that may be given back.
cdef ssize_t read_stream(Stream *st, char *buf, size_t n, size_t *taken) noexcept nogil
# These octets were read: the window may grow.
cdef void grow_window(Stream *st, size_t taken) noexcept nogil
cdef ssize_t peek_stream(Stream *st, char *buf, size_t n) noexcept nogil
