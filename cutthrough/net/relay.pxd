"""Bytes from one socket to another: the pump, and the relay of two of them."""

from libc.stdint cimport int64_t
from cutthrough.net.pump cimport Filter, Pump, Pumped, Tap
from cutthrough.net.transport cimport Socket

# Prepares to move `left` bytes. Keeps `allowance`, `tap`, and `may_splice` if both sockets can
# be spliced; resets everything else.
cdef void start_pump(Pump *pump, Socket *source, Socket *sink, int64_t left) noexcept nogil
# Moves bytes without waiting, for one turn at most.
cdef Pumped run_pump(Pump *pump) noexcept nogil
# Sends bytes to the sink before the source's; keeps the bytes that the sink does not take.
# Two pieces, because a rewritten head stands before a body. False: failed (`error`), or no room (0).
cdef bint push(Pump *pump, const char *a, size_t n, const char *b, size_t m) noexcept nogil
# Runs the bytes through the filter, or counts them off `left`, then pushes them behind
# `head` (empty, except before a message's first bytes). Returns bytes of `data` consumed, or
# < 0: -1 failed as push does, -2 refused.
cdef int64_t feed(Pump *pump, const char *head, size_t head_len, char *data, size_t n) noexcept nogil
# Whether the sink has yet to take bytes of the pump, or will never. Settles first.
cdef bint is_holding(Pump *pump) noexcept nogil
# Frees the pump's block and pipe.
cdef void stop_pump(Pump *pump) noexcept nogil

cdef struct Relay:
    Pump up                 # client to origin
    Pump down

cdef enum Relayed:
    RELAY_OPEN = 0
    RELAY_HALF_CLOSED
    RELAY_CLOSED            # both sides ended, all bytes delivered
    RELAY_UP_SOURCE_FAILED  # the client's side, reading
    RELAY_UP_SINK_FAILED    # the origin's side, writing
    RELAY_DOWN_SOURCE_FAILED
    RELAY_DOWN_SINK_FAILED
    RELAY_NO_ROOM

# Drops the sink: from now on the source's bytes are thrown away, up to `left`. run_relay calls
# it if a send reports that the origin has ended.
cdef void lose(Pump *pump) noexcept nogil
# Throws bytes away for one turn. PUMP_SINK_FAILED: the source has sent more than `left`.
cdef Pumped throw_away(Pump *pump) noexcept nogil
# What its next turn waits for.
cdef enum Resumed:
    BY_EVENT = 0
    BY_TURN                 # nothing: there is more to do
    BY_ROOM                 # a free block: no event tells of that

# Runs one turn of both directions.
cdef Relayed run_relay(Relay *relay, Resumed *resumed) noexcept nogil
