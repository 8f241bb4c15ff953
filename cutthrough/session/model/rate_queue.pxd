"""Requests beyond a rate that wait for their turn, as their limits say."""

from cutthrough.net.poller cimport Endpoint
from cutthrough.session.model.client cimport Client

cdef class RateQueue(Endpoint):
    """Context.rate_queue; None: no request has waited."""
    cdef dict waiting           # what is counted -> its clients, in the order in which they came
    cdef Client trying          # the first of its line, as it is charged again
    cdef bint stays             # … and still has to wait

    cdef int watch(self) except -1
    cdef bint lets_go(self, Client c) except -1

# This phase was refused for the rate: does the request wait for it, in HELD?
cdef bint waits_for_rate(Client client, int phase) except -1
# It has waited as long as its limits let it.
cdef int end_queueing(Client client) except -1
