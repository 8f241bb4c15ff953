"""The common part of connections of TLS: certificates, versions, ciphers, authorities."""

from cutthrough.net.tls.openssl cimport OSSL_LIB_CTX, SSL, SSL_CTX, SSL_METHOD
from cutthrough.net.tls.sessions cimport Server, Sessions, sessions_of
from cutthrough.net.tls.ticket_keys cimport TicketKeys

# For ALPN, in our order; the NUL behind the last name ends the list
cdef const unsigned char *HTTP_11
cdef const unsigned char *HTTP_2_OR_11

cdef class TlsContext:
    """One listener's side or one way out. Connections hold a reference."""
    cdef SSL_CTX *ctx               # of connections that name no server
    cdef readonly bint makes_leaves         # of an interception: see leaves
    cdef readonly bint names_peer           # the peer's certificate names a user
    cdef readonly list certificates         # Certificate
    cdef Sessions sessions          # of a way out to one server, to be resumed
    cdef Server *servers            # the same, of one to many; NULL: to one

    # To be resumed, of the server whose name this connection expects; NULL: none are.
    cdef inline Sessions *sessions_for(self, const SSL *ssl) noexcept nogil:
        return &self.sessions if self.servers == NULL else sessions_of(self.servers, ssl)

    # If `makes_leaves`: has the connection show a certificate for this name. False: it cannot.
    cdef bint speak_for(self, SSL *ssl, bytes name) except -1

# No connection of a listener without a certificate that has a name.
cdef bint needs_peer(const SSL *ssl) noexcept nogil
# Why the last server name was refused, once: one of Handshake; 0: none was.
cdef int take_refusal() noexcept nogil

# The name in the peer's certificate as a new reference to bytes; NULL: there is none.
cdef void *name_of_peer(void *context, SSL *ssl) noexcept nogil

# A context with what all have in common; the caller frees it. Raises TlsError.
cdef SSL_CTX *new_context(
    const SSL_METHOD *method, min_version, str ciphers, OSSL_LIB_CTX *library=*) except NULL
# Of a server: certificates (Loaded), and tickets if there are keys. `scope`: of its sessions.
cdef int set_up_server(SSL_CTX *ctx, bytes scope, TicketKeys keys, list loaded) except -1
