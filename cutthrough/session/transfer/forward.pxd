"""A plain request: one exchange with the origin, message by message."""

from cutthrough.session.model.client cimport Client
from cutthrough.wire.framing cimport Framing

# Prepares the request's body as its framing says; the head is in client.head. False: no
# memory.
cdef bint expect_body(Client client, const Framing *framing) noexcept
# client.origin is connected, or taken from the pool: sends the head and the body received so far.
cdef int send_request(Client client) except -1
# An event at the client's side, or at the origin's.
cdef int on_client(Client client) except -1
cdef int on_origin(Client client) except -1
