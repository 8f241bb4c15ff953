"""The way to the origin: a connection from the idle pool, or a new one."""

from cutthrough.net.address cimport Address
from cutthrough.net.connector cimport Connector, Upstream
from cutthrough.session.model.client cimport Client

# The phases, for the request in hand; its limits are charged already unless they depend on the
# address.
cdef int answer_by_function(Client client) except -1
cdef int choose_way(Client client) except -1
cdef int reuse(Client client) except -1
cdef int take_turn_to_dial(Client client) except -1
cdef int connect(Client client) except -1
# client.origin is connected to the origin, and secured if it has to be: the request is sent, or
# its tunnel begins.
cdef int send(Client client) except -1

# May the request be connected to this address, without a parent? Not if the address's rule names
# another way than the request's (R44). The reason of a refusal is kept in request.denied.
cdef bint may_dial_directly(Client client, const Address *address) except -1
# The parent's socket may be readable; in state PARENT.
cdef int on_parent(Client client) except -1
# The dial has ended: see UpstreamOwner.on_dialled.
cdef int take_origin(Client client, Connector connector, Upstream upstream, int error) except -1
