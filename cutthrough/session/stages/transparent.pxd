"""Transparent listeners: clients that know of no proxy."""

from cutthrough.net.address cimport Address
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.stage cimport Reply
from cutthrough.wire.authority cimport Target
from cutthrough.wire.clienthello cimport ClientHello
from cutthrough.wire.openings cimport Protocol

cdef struct First:              # kind of the first bytes
    Protocol protocol
    ClientHello hello           # of TLS

# A Step, and its Finish: HTTP goes on with its head, anything else is a tunnel's request.
cdef int read_first(void *state, const char *data, size_t n, size_t *used) noexcept nogil
cdef bint take_first(Client client, const void *state, Reply *reply) except -1
# Puts the destination that the kernel names into the target of a request. An Outcome.
cdef int narrow(Client client, Target *target) except -1

# For a request whose name narrows its destination (request.narrowed):

# Is the destination one of these `n` addresses of the name? Then the name has been proven.
cdef bint prove(Client client, const Address *of_name, int n) noexcept
# Addresses: the destination's alone; or the label of an outcome.
cdef object destination_alone(Client client)
# From here on the request names the destination's address, not the name.
cdef int forget_name(Client client) except -1
