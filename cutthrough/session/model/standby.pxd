"""Connections to a parent, made before a request needs them."""

from libc.stdint cimport int64_t
from cutthrough.net.connector cimport Upstream, UpstreamOwner
from cutthrough.policy.parents cimport Standing

cdef class Standby(UpstreamOwner):
    """The connections to one parent that wait for a request; TLS is done, no byte was said."""
    cdef Standing standing
    cdef dict waiting               # the connections, as keys; the newest is last, and taken first
    cdef object begin               # of the room above; see configure. None: closed
    cdef object under_way           # the set-up that was begun; None: none, or `begin` runs
    cdef bint is_under_way
    cdef int most
    cdef int64_t timeout_ms
    cdef int64_t wait_ms            # the last back-off; 0: the last connection was good
    cdef int64_t not_before_ms      # time of the next set-up

    # A connection in which no byte, error or end has arrived, the caller's from now on; or None.
    cdef Upstream take(self)
    # The set-up has ended: with a connection, or without one.
    cdef int keep(self, Upstream upstream) except -1
    cdef int miss(self) except -1
    # Closes all, because descriptors are needed elsewhere. Returns how many.
    cdef int give_up(self) except -1
    # One that was taken has turned out to be dead.
    cdef void note_dead(self) noexcept
    cdef int look(self) except -1
    cdef int clear(self) except -1
    cdef int end_newest(self) except -1
    cdef int unlink(self, Upstream upstream) except -1
    cdef void back_off(self) noexcept
