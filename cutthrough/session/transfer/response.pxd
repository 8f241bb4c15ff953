"""The response of one exchange: its head is read, rewritten and passed on, then its body."""

from cutthrough.session.model.client cimport Client

# Reads the head, as far as it has come. Once it is whole, passes on head and body.
cdef int read_response(Client client) except -1
# Passes on the bytes of the body that have come; the exchange may end here.
cdef int pump_down(Client client) except -1
# Goes on with a final head, and the bytes behind it, after filters had it.
cdef int replay_response(Client client, char *data, size_t n) except -1
