"""Stages: the small protocols that a connection speaks before its first request."""

from cutthrough.session.client cimport Client

# Bits of Client.stages: the stages that are left, the lowest bit first.
cdef enum Stage:
    STAGE_PROXY = 1             # a header of the PROXY protocol names the client
    N_STAGES = 1

# For a connection that was just accepted. An Outcome: OK, or the refusal.
cdef int begin_stages(Client client, int stages) except -1
# The socket is readable. True: all stages are done; bytes after them are in client.input.
cdef bint run_stages(Client client) except -1
