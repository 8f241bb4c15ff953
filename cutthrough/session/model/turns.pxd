"""Turns: one request dials an origin of HTTP/2, and others of its key wait for the connection."""

cimport cython
from cutthrough.net.poller cimport Endpoint
from cutthrough.session.model.client cimport Client


@cython.no_gc
cdef class Turn(Endpoint):
    """A request's turn to dial, later its carrier's to begin. close: others may find their way."""
    cdef Client client                  # None: the carrier has it, or it is over
    cdef dict table                     # the last turn of each key; None: it is over
    cdef object key
    cdef list waits                     # of Wait

    cdef int wait(self, Client client) except -1


@cython.no_gc
cdef class Wait(Endpoint):
    """A request that waits for another's turn. close: it waits no more."""
    cdef Client client
    cdef Turn turn

# The turn of this client's request to dial.
cdef Turn take_turn(Client client, dict table, object key)
# A turn that is a carrier's from the beginning.
cdef Turn make_turn(dict table, object key)
# Whether the request has waited, and waits no more.
cdef bint ends_wait(Client client) except -1
