"""Clients that do not accept the certificate of an interception, and are passed by rule (R57)."""

from cutthrough.session.model.client cimport Client

# The tunnel's rule has its TLS intercepted, and its first bytes are a ClientHello. True: it is
# to pass unopened.
cdef bint is_pinned(Client client) except -1
# The handshake with the client of an interception has failed; `failure`: a Handshake.
cdef int note_failure(Client client, int failure) except -1
