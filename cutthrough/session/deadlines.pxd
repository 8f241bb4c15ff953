"""A missed deadline: the end of a request, or more time."""

from cutthrough.session.client cimport Client

# The timer of a connection has expired, in any state but CLOSED.
cdef int miss_deadline(Client client) except -1
