"""TLS on a listener: the stage of the handshake."""

from cutthrough.net.transport cimport Agreed
from cutthrough.session.model.client cimport Client

# As far as it goes now. True: the handshake is done. False: it is not, or has failed, which has
# ended the connection.
cdef bint shake_hands(Client client) except -1
# Puts TLS above the client's socket, whose `slot` is the context's number; the bytes in
# client.input are the handshake's. `name`: to speak for; NULL: the context knows. False: no room.
cdef bint put_transport(Client client, const char *name) except -1
# The name in the client's verified certificate; None: it showed none.
cdef bytes certified_name(Client client)
# The result of a client's handshake; NULL: no TLS, or the handshake is not done. Valid until the
# next call.
cdef const Agreed *agreed_by(Client c) noexcept
# The same of the connection to the origin, or to a parent.
cdef const Agreed *agreed_behind(Client c) noexcept
