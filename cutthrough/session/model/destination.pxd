"""Where a request goes."""

from cutthrough.net.address cimport Address
from cutthrough.session.model.client cimport Client
from cutthrough.wire.authority cimport Target

# Sets client.key, canonical host and port, and the request's port and host_kind. Uses the two
# bytes behind target.host.
cdef int set_destination(Client client, Target *target) except -1
# Reads the host of client.key, which is an address: its host_kind is not HOST_NAME.
cdef int read_destination(Client c, Address *address) except -1
