"""What connections of TLS have in common: certificates, versions, ciphers, authorities."""

from cutthrough.net.openssl cimport SSL, SSL_CTX
from cutthrough.net.tls_sessions cimport Sessions

cdef class TlsContext:
    """One listener's side or one way out. Connections hold a reference."""
    cdef SSL_CTX *ctx               # of connections that name no server
    cdef readonly bint requires_peer        # no connection without a certificate that has a name
    cdef readonly bint names_peer           # the peer's certificate names a user
    cdef readonly list certificates         # Certificate
    cdef Sessions sessions          # of a way out, to be resumed

# The name in the peer's certificate as a new reference to bytes; NULL: there is none.
cdef void *name_of_peer(void *context, SSL *ssl) noexcept nogil
