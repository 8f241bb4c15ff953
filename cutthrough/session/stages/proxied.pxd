"""Connections through a load balancer: the stage of the PROXY protocol."""

from libc.stdint cimport uint8_t
from cutthrough.net.address cimport Address
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.stage cimport Reply

# At accept: may this address send headers (R40), and has the worker a place? An Outcome.
cdef int admit_sender(Client client) except -1
# The stage; `state` is a ProxyHeader. See stage.
cdef int read_header(void *state, const char *data, size_t n, size_t *used) noexcept nogil
cdef bint name_client(Client client, const void *state, Reply *reply) except -1

# The load balancer that named client.address; NULL: none, or one that is not remembered.
cdef const Address *sender_of(Client client) noexcept nogil
# The value of Client.sender for this address.
cdef uint8_t number_of_sender(const Address *address) noexcept nogil
