"""The response of one exchange: its head is read, rewritten and passed on, then its body."""

from cutthrough.session.client cimport Client

# Reads what the origin's socket has of the head; then passes on what it can.
cdef int read_response(Client client) except -1
# Passes on what has come of the body; the exchange may end here.
cdef int pump_down(Client client) except -1
