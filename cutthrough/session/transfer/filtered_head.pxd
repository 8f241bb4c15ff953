"""A request's head from filters."""

from cutthrough.session.model.client cimport Client
from cutthrough.wire.rewrite cimport Span

# Reads a head that filters made, and makes client.head of it. Returns an Outcome.
cdef int rebuild(Client client, bytes text) except -1
# What `rebuild` would make of this head, and where its path is; b"": it is none. Not between
# `rebuild` and `move`.
cdef bytes rewritten(Client client, bytes text, Span *path)
# Is the destination of the head that `rebuild` read last the request's?
cdef bint is_same_target(Client client) except -1
# The request goes to that destination, and is judged again by the caller. Returns an Outcome.
cdef int move(Client client) except -1
# The host that filters see: inside an intercepted connection, the name of the certificate.
cdef bytes host_of(Client client)
