"""Origins in Python: functions of this process that answer requests; nothing is dialled."""

from cutthrough.session.model.client cimport Client

# This function answers the request, or has the tunnel, in place of a server: the state is DIAL, and
# the next phase SEND.
cdef int connect_function(Client client, function) except -1
