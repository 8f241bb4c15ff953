"""Stages: the small protocols that a connection speaks before its first request."""

from cutthrough.session.model.client cimport Client

cdef enum Next:
    STAGES_LEFT = 0             # a stage waits, or has ended the connection
    HEAD_NEXT                   # all are done; the head of a request follows
    REQUEST_NEXT                # all are done, and one of them has read a request
    STREAMS_NEXT                # all are done: streams follow

# For a connection that was just accepted. An Outcome: OK, or the refusal.
cdef int begin_stages(Client client, int stages) except -1
# The socket is readable, or bytes wait in client.input, where those behind the stages stay.
cdef int run_stages(Client client) except -1
