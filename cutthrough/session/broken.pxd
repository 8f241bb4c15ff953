"""A client's socket that broke: reset, or closed?"""

from cutthrough.session.client cimport Client

# The Outcome of a client whose socket is BROKEN before its exchange has ended. Over TCP only a
# reset breaks a socket; on a unix socket a close does, and leaves no error. Takes the error.
cdef int outcome_of_break(Client client) noexcept
