"""PEEK: a look at the first bytes of a tunnel, before any byte moves."""

from cutthrough.session.model.client cimport Client

# An event at either side, in state PEEK.
cdef int peek(Client client) except -1
# At the deadline of PEEK.
cdef int end_peek(Client client) except -1
