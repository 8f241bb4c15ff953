"""Incoming connections."""

from cutthrough.net.address cimport Address
from cutthrough.net.poller cimport Endpoint

cdef class Sink:
    """Where accepted connections go. Filled in by the room above."""
    # The fd is the sink's from here on, whatever happens. False: it was turned away.
    cdef int on_accept(self, int fd, const Address *client) except -1
    # No descriptor is to be had: closes some of what is at rest. Returns how many.
    cdef int shed(self) except -1

cdef class Acceptor(Endpoint):
    cdef Sink sink
    cdef object listener            # the socket object, which owns the fd's life elsewhere
    cdef readonly unsigned long accepted
    cdef readonly unsigned long failed      # times that no descriptor was to be had
    cdef readonly bint paused

    cdef bint _find_room(self, int error) except -1
    cdef int _pause(self) except -1
