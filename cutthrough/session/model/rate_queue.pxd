"""Requests beyond a rate wait for their turn, if their limits have a queue."""

from cutthrough.net.poller cimport Endpoint
from cutthrough.session.model.client cimport Client

cdef class RateQueue(Endpoint):
    """Context.rate_queue; None: no request has waited."""
    cdef dict waiting           # the subject of a limit -> its clients, the first to come first
    cdef Client trying          # the first of its line, as it is charged again
    cdef bint stays             # … and still has to wait

    cdef int watch(self) except -1
    cdef bint lets_go(self, Client c) except -1

# This phase was refused for the rate: does the request wait for it, in HELD?
cdef bint waits_for_rate(Client client, int phase) except -1
# It has waited as long as its limits let it.
cdef int end_queueing(Client client) except -1
