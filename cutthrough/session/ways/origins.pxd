"""Named origins on a request's way: what differs from parents."""

from cutthrough.policy.parents cimport Way
from cutthrough.session.model.client cimport Client

# The Outcome of a request for which no member of `way` is left; `outcome`: of the last one, in the
# words of parents.
cdef int outcome_of_way(Way way, int outcome) noexcept
# The Outcome of a server, from one in the words of parents; others stay.
cdef int outcome_of_server(int outcome) noexcept
# The server in use has failed after the request was sent: `outcome` is PARENT_CLOSED, or
# BAD_PARENT if it has not answered in time.
cdef int blame_server(Client client, int outcome) except -1
# May the request, of which no byte was answered, be sent to another server? Then the one in use is
# blamed, and not taken again.
cdef bint goes_elsewhere(Client client) except -1
# The server in use has answered.
cdef void praise_server(Client client) noexcept
# The request's head for the server in use; in head_scratch() unless it is client.head as it is.
# NULL: no room for it.
cdef const char *head_for_server(Client client, size_t *n) except? NULL
