"""Incoming connections."""

from cutthrough.net.address cimport Address
from cutthrough.net.poller cimport Endpoint

cdef class Sink:
    """Receives accepted connections. Implemented by the layer above."""
    # The sink owns the fd from here on, even if it raises.
    cdef int on_accept(self, int fd, const Address *client) except -1
    # Out of descriptors: closes some connections at rest. Returns how many.
    cdef int shed(self, bint clients_too) except -1

cdef class Acceptor(Endpoint):
    cdef Sink sink
    cdef object listener            # the socket object; its owner closes it
    cdef readonly unsigned long accepted
    cdef readonly unsigned long failed      # accept4 calls that ran out of descriptors or memory
    cdef readonly bint paused
    cdef int calls                  # of accept4, for the next event
    cdef int full_events            # in a row

    cdef bint _is_waited_for(self) noexcept
    cdef bint _find_room(self, int error) except -1
    cdef int _pause(self) except -1
