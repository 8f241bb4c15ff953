"""Bytes from one socket to another: the pump, and the relay of two of them."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from cutthrough.net.buffers cimport Block
from cutthrough.net.pipes cimport Pipe
from cutthrough.net.transport cimport Socket

# What holds a pump up, or how it ended.
cdef enum Pumped:
    PUMP_DRY = 0            # the source has no more bytes now
    PUMP_STUCK              # the destination takes no more bytes now
    PUMP_AGAIN              # its turn is over, there is more to do
    PUMP_STARVED            # filtered bytes are there, and no block should they get stuck
    PUMP_PACED              # it may read no more bytes now: see `allowance`
    PUMP_DONE               # all bytes that it was to move have been taken
    PUMP_EOF                # the source ended; all bytes before that have been taken
    PUMP_SOURCE_FAILED      # `error` has the errno
    PUMP_SINK_FAILED        # the same
    PUMP_REFUSED            # the filter refused what it read
    PUMP_NO_ROOM            # no memory for what has been read already

# Reads, and may shorten in place, what has come: bytes consumed (fewer than n only when
# the last one of the message was among them: then it has set pump.left = 0), or < 0. What it
# held back of earlier bytes, and lets go now, it names in *before: that goes before `data`.
ctypedef int64_t (*filter_t)(void *context, char *data, size_t n, size_t *out_len,
                             const char **before, size_t *before_len) noexcept nogil

cdef struct Pump:
    Socket *source
    Socket *sink
    Block *kept             # read, and not taken yet
    Pipe *pipe              # the same, in the kernel
    int64_t left            # bytes still to be read; < 0: until EOF
    uint64_t moved          # bytes that the sink has taken
    int64_t allowance       # bytes that it may still read; INT64_MAX: as good as all
    filter_t filter
    void *context           # of the filter
    int error
    uint8_t bulk            # full reads in a row; the path follows from it
    uint8_t eof
    uint8_t may_splice
    uint8_t spliced         # it has, at least once

# Ready to move `left` bytes. Resets everything but may_splice, which holds if both sockets
# can be spliced, and allowance.
cdef void start_pump(Pump *pump, Socket *source, Socket *sink, int64_t left) noexcept nogil
# Moves what can be moved without waiting, for one turn at most.
cdef Pumped run_pump(Pump *pump) noexcept nogil
# Hands bytes to the sink before those of the source: sends now, keeps what is not taken.
# Two pieces, because a rewritten head stands before a body. False: failed (`error`), or no room (0).
cdef bint push(Pump *pump, const char *a, size_t n, const char *b, size_t m) noexcept nogil
# Runs the bytes through the filter, or counts them off `left`, then pushes them behind
# `head`, which only the first bytes of a message have. Returns bytes of `data` consumed, or
# < 0: -1 failed as push does, -2 refused.
cdef int64_t feed(Pump *pump, const char *head, size_t head_len, char *data, size_t n) noexcept nogil
cdef bint is_holding(const Pump *pump) noexcept nogil
# Gives back what it holds.
cdef void stop_pump(Pump *pump) noexcept nogil

cdef struct Relay:
    Pump up                 # client to origin
    Pump down
    uint8_t up_shut         # EOF was passed on
    uint8_t down_shut

cdef enum Relayed:
    RELAY_OPEN = 0
    RELAY_HALF_CLOSED
    RELAY_CLOSED            # both sides ended, all bytes delivered
    RELAY_UP_SOURCE_FAILED  # the client's side, reading
    RELAY_UP_SINK_FAILED    # the origin's side, writing
    RELAY_DOWN_SOURCE_FAILED
    RELAY_DOWN_SINK_FAILED
    RELAY_NO_ROOM

# The sink takes no more: what the source sends is thrown away from now on, as far as `left`
# goes. run_relay sees to it itself where a send tells that an origin has ended.
cdef void lose(Pump *pump) noexcept nogil
# One turn of that. PUMP_SINK_FAILED: more has come than is thrown away.
cdef Pumped throw_away(Pump *pump) noexcept nogil
# One turn of both directions; *again: there is more to do without an event.
cdef Relayed run_relay(Relay *relay, bint *again) noexcept nogil
