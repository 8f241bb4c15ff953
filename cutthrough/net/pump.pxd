"""A pump's struct: bytes of one socket on their way to another. See relay."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from cutthrough.net.buffers cimport Block
from cutthrough.net.linux cimport ENOBUFS, ENOMEM
from cutthrough.net.pipes cimport Pipe
from cutthrough.net.transport cimport Socket

# Why a pump waits, or how it ended.
cdef enum Pumped:
    PUMP_DRY = 0            # the source has no more bytes now
    PUMP_STUCK              # the sink takes no more bytes now
    PUMP_AGAIN              # its turn is over, there is more to do
    PUMP_STARVED            # no block is free for bytes that it cannot leave in the source
    PUMP_PACED              # it may read no more bytes now: see `allowance`
    PUMP_SENDING            # all of `left` goes to the sink when the batch ends: see `sending`
    PUMP_DONE               # the sink has taken all of `left`
    PUMP_EOF                # the source ended; the sink has taken all bytes before that
    PUMP_SOURCE_FAILED      # `error` has the errno
    PUMP_SINK_FAILED        # the same
    PUMP_REFUSED            # the filter refused what it read
    PUMP_NO_ROOM            # no memory for bytes already read, or to send them

# `error` after a send that failed. 0: for want of memory, here or in the kernel. The peer knows nothing
# of that, so whoever waited for its end would wait for ever.
cdef inline uint8_t error_of_send(ssize_t result) noexcept nogil:
    return <uint8_t>(0 if result == -ENOMEM or result == -ENOBUFS else -result)

# Inspects the `n` bytes in `data` and may shorten them in place. Returns bytes consumed, or < 0;
# fewer than `n` only if the message ended among them, with pump.left set to 0. *before: earlier
# bytes, held back until now, that go before `data`. The owner's own fields may follow behind
# the Filter: a pump has one pointer for both, because there are thousands at rest.
cdef struct Filter:
    int64_t (*run)(Filter *filter, char *data, size_t n, size_t *out_len,
                   const char **before, size_t *before_len) noexcept nogil

# Is passed each piece of a stream before the sink is, heads as they are sent on and the framing
# of chunked bodies included, and may not change it. A piece may be empty. The owner's own fields
# may follow behind the Tap. A pump with a tap copies and never splices.
cdef struct Tap:
    void (*take)(Tap *tap, const char *data, size_t n) noexcept nogil
    uint8_t is_chunked      # a Responder writes the body, in chunks; see also scan_of

# Whether bytes of a pump wait for the end of a batch (see deferred). They count as moved, and as not
# held: who would end, send or splice behind them calls `settle` or `is_holding` first.
cdef enum Sending:
    SENDING_NONE = 0
    SENDING_UNWATCHED       # nobody needs to know when the sink has them
    SENDING_WATCHED         # the sink's endpoint is called when it has them
    SENDING_SEALED          # their rest waits in the sink's transport, for room in the kernel
    SENDING_FAILED          # the sink did not take them: `error`, or 0 without room to keep them

# Bytes read, and not yet taken by the sink.
cdef union Held:
    Block *block            # NULL: none
    Pipe *pipe              # the same, in the kernel; may be empty

cdef struct Pump:
    Socket *source
    Socket *sink
    Held held
    int64_t left            # bytes still to be read; < 0: until EOF
    uint64_t moved          # bytes taken by the sink
    int64_t allowance       # bytes it may still read; INT64_MAX: in effect unlimited
    Filter *filter          # NULL: none
    Tap *tap                # NULL: none
    uint8_t is_piped        # `held` is a pipe
    uint8_t error           # an errno; Linux has none above 133
    uint8_t bulk            # full reads in a row; selects copy or splice
    uint8_t eof
    uint8_t may_splice
    uint8_t spliced         # at least once
    uint8_t shut            # in a relay: EOF was passed on
    uint8_t sending         # a Sending


cdef inline Block *block_of(const Pump *p) noexcept nogil:
    return NULL if p.is_piped else p.held.block
