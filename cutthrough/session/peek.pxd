"""A tunnel's first bytes are looked at before any byte moves, and stay where they are."""

from cutthrough.session.client cimport Client

# The state is PEEK, and there may be something to read at either side.
cdef int peek(Client client) except -1
# The deadline of PEEK.
cdef int end_peek(Client client) except -1
