"""Stages: the small protocols that a connection speaks before its first request."""

from cutthrough.session.client cimport Client

# For a connection that was just accepted. An Outcome: OK, or the refusal.
cdef int begin_stages(Client client, int stages) except -1
# The socket is readable. True: all stages are done; bytes after them are in client.input.
cdef bint run_stages(Client client) except -1
