"""Sessions that servers have given us, for the next connections to them."""

from libc.stdint cimport uint8_t
from cutthrough.net.tls.openssl cimport SSL, SSL_CTX, SSL_SESSION

cdef enum:
    # A server of TLS 1.3 gives two tickets after a full handshake, and one after a resumed one
    MOST_SESSIONS = 8
    # A bound of memory: a session has the server's ticket and certificates, some 3 KB
    MOST_SERVERS = 256          # a power of 2
    MOST_STORED = 16384         # bytes of a session's ticket and certificates
    NAME_BYTES = 256

# Of the connections of one SSL_CTX, which leads to one server with one name.
cdef struct Sessions:
    SSL_SESSION *stored[MOST_SESSIONS]  # the newest last
    int n
    uint8_t refused                     # the server fails handshakes that offer one

# Of one SSL_CTX that leads to many servers: `sessions` of the last one with a name of this hash.
cdef struct Server:
    char[NAME_BYTES] name
    Sessions sessions

# Has the sessions of this context's connections kept. They must outlive the context's connections.
cdef int keep_sessions(SSL_CTX *ctx, Sessions *sessions) except -1
# Offers the newest session in the handshake to come. False: there is none.
cdef bint offer_session(Sessions *sessions, SSL *ssl) noexcept nogil
# The server has failed a handshake with a session: none is offered or kept any more.
cdef void refuse_sessions(Sessions *sessions) noexcept nogil
cdef void drop_sessions(Sessions *sessions) noexcept nogil
# Has sessions kept by the server's name; NULL: no memory. They must outlive the connections.
cdef Server *keep_by_name(SSL_CTX *ctx) noexcept
# Those of the server whose name this connection expects; NULL: it is an address.
cdef Sessions *sessions_of(Server *servers, const SSL *ssl) noexcept nogil
cdef void drop_servers(Server *servers) noexcept nogil
