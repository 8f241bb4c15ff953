"""Deadlines: a hashed wheel of one level, with lazy re-arming."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    TICK_MS = 32
    N_SLOTS = 2048              # a horizon of 65 s; later deadlines are filed again on the way
    N_WORDS = 32                # one bit for each slot
    # Deadlines handled in one advance(), of which the loop makes up to three between two waits:
    # without a bound, ten thousand slow clients that expired together held up all other
    # connections for 0.2 s; with 64, for 2 to 3 ms of CPU each time
    MOST_EXPIRED = 16

# Embedded in an object that has a deadline, which `on_expiry` finds around it. Zeroed: not armed.
# Packed, to 28 bytes: small fields of its owner follow without a gap.
cdef packed struct Timer:
    Timer *prev
    Timer *next
    int64_t deadline_ms         # of CLOCK_MONOTONIC; moved freely to later times
    uint32_t filed_tick         # the tick that checks this timer; 0: not filed

ctypedef void (*on_expiry_t)(Timer *timer) noexcept

cdef class Wheel:
    cdef Timer slots[N_SLOTS]           # heads of circular lists
    cdef uint64_t occupied[N_WORDS]
    cdef int64_t tick                   # the last tick passed
    cdef int64_t next_tick              # the earliest with a timer, if it is not passed; 0: not known
    cdef int turn                       # deadlines that may still expire in this advance()
    cdef int64_t now_ms                 # time of the current batch, set by advance()
    cdef readonly Py_ssize_t armed
    cdef on_expiry_t on_expiry

    # Sets or moves the deadline. A move to a later time is two stores.
    cdef void arm(self, Timer *timer, int64_t deadline_ms) noexcept
    cdef void disarm(self, Timer *timer) noexcept
    # Passes all ticks up to now; calls on_expiry for each deadline that has come.
    cdef void advance(self, int64_t now_ms) noexcept
    cdef void _pass(self, int slot) noexcept
    cdef void _file(self, Timer *timer) noexcept
    cdef void _unfile(self, Timer *timer) noexcept
    # Milliseconds until the next filed tick; -1: nothing is filed.
    cdef int64_t next_in_ms(self, int64_t now_ms) noexcept
