"""Texts about a client, for people."""

from cutthrough.net.address cimport Address
from cutthrough.session.model.client cimport Client

# The method as the client wrote it; None: no request was read.
cdef object method_of(Client client)
# The address without its port; None: there is none.
cdef object text_of(const Address *address)
