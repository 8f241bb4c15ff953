"""The inner epoll set of a worker, its time, and what lives in it."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from cutthrough.net.linux cimport epoll_event
from cutthrough.net.transport cimport Socket
from cutthrough.net.timers cimport Timer, Wheel

cdef enum:
    BATCH = 256             # events per turn: one connection each, so none starves


# Not the collector's: 16 bytes each, and thousands to walk over, for nothing to find. What
# is open is kept by the set, and close() cuts every cycle.
@cython.no_gc
cdef class Endpoint:
    """One fd in the set, its readiness and its deadline; and the hooks by which the
    rooms above hear of what happened. Who makes it calls poller.add, and closes it."""
    cdef Socket sock
    cdef Timer timer
    cdef Poller poller
    cdef uint8_t is_open    # in the set; a transport may have no descriptor of its own
    cdef uint8_t listed     # in the poller's list of those to be called again
    cdef uint8_t starved    # in its list of those that wait for a block

    cdef int on_ready(self) except -1
    cdef int on_deadline(self) except -1
    # A fault of our own was caught at this endpoint: close, and nothing else (R34).
    cdef int on_fault(self) except -1
    cdef int close(self) except -1
    cdef int set_deadline(self, int64_t after_ms) except -1
    # Will a deadline end its wait? Asked in debug builds, after every event (R30).
    cdef bint is_timed(self) noexcept

cdef class Poller:
    cdef readonly int epfd
    cdef readonly Py_ssize_t registered     # endpoints in the set
    cdef readonly uint32_t faults           # exceptions caught at an endpoint's border
    cdef Wheel wheel
    cdef int64_t now_us                     # at the start of this batch
    cdef epoll_event events[BATCH]
    cdef bint in_batch
    cdef list closed                        # kept allocated until the batch ends
    cdef list again                         # endpoints with work left from this turn
    cdef list starved                       # endpoints that wait for a block
    cdef list fresh                         # debug: registered since the last batch
    cdef object loop, soon, later
    cdef int64_t later_ms                   # when `later` will come
    cdef object on_fault_hook, exit

    # Puts the endpoint's fd, if it has one, into the set, edge-triggered, and keeps the
    # endpoint alive.
    cdef int add(self, Endpoint endpoint) except -1
    # Level-triggered reading only: a listening socket.
    cdef int add_level(self, Endpoint endpoint) except -1
    cdef int want_level(self, Endpoint endpoint, bint wanted) except -1
    # Takes it out and closes it. Idempotent.
    cdef int remove(self, Endpoint endpoint) except -1
    # Takes it out. The fd, which is returned, stays open and is the caller's; -1: had none.
    cdef int release(self, Endpoint endpoint) except -2
    # Has on_ready called again in the next turn, without an event.
    cdef int call_again(self, Endpoint endpoint) except -1
    # The same, as soon as there is a block to be had.
    cdef int call_when_room(self, Endpoint endpoint) except -1
    # Brings `now_us` up to date outside of a batch: for whoever the loop calls directly.
    cdef void take_time(self) noexcept
    # The same, and says it.
    cdef int64_t time_ms(self) noexcept
    # Arms the endpoint's timer; the only way to do it, because outside of a batch the loop
    # has to be told too.
    cdef int arm(self, Endpoint endpoint, int64_t deadline_ms) except -1
    cdef int _register(self, Endpoint endpoint, uint32_t events) except -1
    cdef int _unregister(self, Endpoint endpoint) except -1
    cdef int _take_events(self, int most) except -1
    cdef int _handle(self, int n) except -1
    cdef int _wake_starved(self) except -1
    cdef int _check_timed(self, Endpoint endpoint) except -1
    cdef int _plan(self) except -1
