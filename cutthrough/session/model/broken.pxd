"""A client's socket that failed."""

from cutthrough.session.model.client cimport Client

# Returns the Outcome if the client's socket is BROKEN before the exchange has ended. Over TCP only
# a reset breaks a socket. On a unix socket a close breaks it too, and leaves no error. Takes the
# error.
cdef int outcome_of_break(Client client) noexcept
# Returns the Outcome of an errno that a read or a send got; 0: no memory for the bytes.
cdef int outcome_of_client(int error) noexcept nogil
# The phase: a client that has gone gets no origin. The kernel reports a reset once, and it has.
cdef int watch_client(Client client) except -1
