"""TLS inside a tunnel is opened: both handshakes, and the bytes behind them."""

from cutthrough.net.connector cimport Upstream
from cutthrough.session.model.client cimport Client

# The tunnel's first bytes are a ClientHello, and its rule has it intercepted. In state PEEK.
# `only_http`: other protocols inside do not pass. `offer`: of the ClientHello, for the origin's;
# None: our own.
cdef int begin_interception(Client client, bint only_http, bytes offer) except -1
# client.origin is connected, for a request inside: makes the TLS handshake.
cdef int secure_origin(Client client) except -1
# An event at the origin, in state SECURE.
cdef int go_on_securing(Client client) except -1
# The client's handshake is done: the CONNECT has ended, and requests follow.
cdef int enter(Client client) except -1
# The connection to the origin that waits for the first request; None: none, or it has ended.
cdef Upstream take_spare(Client client)
# An event at the connection that waits.
cdef int on_spare(Client client) except -1
