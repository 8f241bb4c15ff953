"""Where the connection to the origin comes from, if the policy or the user has a source."""

from libc.stdint cimport uint16_t
from cutthrough.net.address cimport Address
from cutthrough.net.connector cimport FAULT, Leave
from cutthrough.net.transport cimport Socket
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.context cimport Context

# The name of the request's source; None: it has none.
cdef str name_of_source(Client client)
# The number of the newest source of this name; 0: there is none.
cdef uint16_t source_named(Context context, str name) except? 0

# The destination as the idle pool knows it, which may depend on the user.
cdef bytes key_of_pool(Client client)

# For requests with a source: request.hop.source is not 0.

# May this address, which the policy allows, be dialled from the source?
cdef Leave leave_by_source(Client client, const Address *address) except FAULT
# False: the source cannot be used on this host now; the reason is in request.denied.
cdef bint prepare_origin(Client client, const Socket *s, const Address *address) except -1
