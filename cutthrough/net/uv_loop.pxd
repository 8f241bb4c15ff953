"""libuv's loop, asleep in a worker's epoll set instead of its own."""

from cutthrough.net.linux cimport epoll_event

# Handles `n` events of the set; called with the GIL.
ctypedef void (*events_t)(void *owner, int n) noexcept

# Makes `loop` wait for the events of the set `epfd`, and hand them over: at most `most` at a time,
# in `events`. Returns False if `loop` is not uvloop's, or a loop of this process sleeps in a set
# already. Raises OSError.
cdef bint enter_set(object loop, int epfd, epoll_event *events, int most, events_t on_events,
                    void *owner) except -1
# Makes the loop wait in its own set again, if it waits in `epfd`.
cdef void leave_set(int epfd) noexcept
