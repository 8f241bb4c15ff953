"""A worker's inner epoll set, its clock, and its endpoints."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from cutthrough.net.linux cimport epoll_event
from cutthrough.net.transport cimport Socket
from cutthrough.net.timers cimport Timer, Wheel

cdef enum:
    BATCH = 256             # events per turn, one for each connection, so none starves
    # Bytes of bodies that go to Python in a turn, of all connections, for new events and for
    # what was left over each: 0.1 ms of work. The others are read in the next turn
    MOST_CONTENT = 262144


# Untracked by the collector, because that saves 16 bytes each and walks over thousands that find
# nothing. The set keeps open endpoints alive, and close() cuts every cycle.
@cython.no_gc
cdef class Endpoint:
    """One fd in the set, with its readiness, its deadline, and hooks for the layers above.
    Its creator calls poller.add, and closes it."""
    cdef Socket sock
    cdef Timer timer
    cdef uint8_t is_open    # in the set; a transport may have no descriptor of its own
    cdef uint8_t listed     # in the poller's `again`
    cdef uint8_t starved    # in the poller's `starved`
    cdef Poller poller

    cdef int on_ready(self) except -1
    cdef int on_deadline(self) except -1
    # Called if an exception was caught at this endpoint: must only close (R34).
    cdef int on_fault(self) except -1
    cdef int close(self) except -1
    cdef int set_deadline(self, int64_t after_ms) except -1
    # Whether a deadline will end its wait. Debug builds check it after every event (R30).
    cdef bint is_timed(self) noexcept

cdef class Poller:
    cdef readonly int epfd
    cdef readonly Py_ssize_t registered     # endpoints in the set
    cdef readonly uint32_t faults           # exceptions caught at an endpoint's border
    cdef uint8_t dials                      # kind of the sockets that dials open
    cdef Wheel wheel
    cdef int64_t now_us                     # at the start of this batch
    cdef epoll_event events[BATCH]
    cdef int64_t content_left               # of MOST_CONTENT
    cdef bint in_batch
    cdef readonly bint holds_loop           # the loop sleeps in the set, and does not watch it
    cdef list closed                        # kept allocated until the batch ends
    cdef list again                         # endpoints with work left from this turn
    cdef list spare                         # empty, for the next turn's; None: within a turn
    cdef list starved                       # endpoints that wait for a block
    cdef list fresh                         # debug: endpoints registered since the last batch
    cdef object loop, soon, later           # soon, later: scheduled turns, or None
    cdef int64_t later_ms                   # time of `later`
    cdef object on_fault_hook, exit

    # Puts the endpoint's fd, if it has one, into the set, edge-triggered, and keeps the
    # endpoint alive.
    cdef int add(self, Endpoint endpoint) except -1
    # Level-triggered reading only: a listening socket.
    cdef int add_level(self, Endpoint endpoint) except -1
    cdef int want_level(self, Endpoint endpoint, bint wanted) except -1
    # Takes the endpoint out of the set and closes it. Idempotent.
    cdef int remove(self, Endpoint endpoint) except -1
    # Takes the endpoint out of the set. Returns its fd, which stays open; -1: it had none.
    cdef int release(self, Endpoint endpoint) except -2
    # Ends the connection whose exception is being handled.
    cdef void contain(self, Endpoint endpoint) noexcept
    # Schedules on_ready for the next turn, without an event.
    cdef int call_again(self, Endpoint endpoint) except -1
    # Schedules on_ready for when a block is free.
    cdef int call_when_room(self, Endpoint endpoint) except -1
    # Updates `now_us` outside of a batch, for code that the loop calls directly.
    cdef void take_time(self) noexcept
    # Updates `now_us` likewise, and returns it in ms.
    cdef int64_t time_ms(self) noexcept
    # Arms the endpoint's timer. Always use this: outside of a batch it also schedules a turn
    # with the loop.
    cdef int arm(self, Endpoint endpoint, int64_t deadline_ms) except -1
    cdef int _register(self, Endpoint endpoint, uint32_t events) except -1
    cdef int _unregister(self, Endpoint endpoint) except -1
    cdef int _take_events(self, int most) except -1
    cdef void _begin_turn(self) noexcept
    cdef int _run_turn(self, int n) except -1
    cdef int _handle(self, int n) except -1
    cdef int _wake_senders(self) except -1
    cdef int _wake_starved(self) except -1
    cdef int _check_timed(self, Endpoint endpoint) except -1
    cdef int _plan(self) except -1
