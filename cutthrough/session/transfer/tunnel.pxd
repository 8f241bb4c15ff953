"""A tunnel: two sockets, and bytes that are never read here."""

from cutthrough.session.model.client cimport Client

# Greets the client (the answer to CONNECT; n 0: a 101, with its head pushed already),
# and relays from then on, or after PEEK. client.origin is connected.
cdef int start_tunnel(Client client, const char *reply, size_t n) except -1
# Relays from now on; the state is TUNNEL already. The bytes that the client sent ahead go first.
cdef int begin_relay(Client client) except -1
# One turn, after an event at either side.
cdef int run_tunnel(Client client) except -1
