"""A missed deadline: the end of a request, or more time. One function for each kind of state."""

from cutthrough.session.model.client cimport Client

# HEAD and IDLE: a request, or its connection without one.
cdef int miss_head(Client client) except -1
# No request is under way.
cdef int close_between(Client client) except -1
# A step that takes one answer: the state's outcome.
cdef int miss_step(Client client) except -1
cdef int miss_peek(Client client) except -1
# RESOLVE, DIAL and PARENT: the next parent, if there is one.
cdef int miss_way(Client client) except -1
# Bytes are owed by one of the peers.
cdef int miss_transfer(Client client) except -1
