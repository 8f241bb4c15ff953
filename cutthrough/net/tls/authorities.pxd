"""Whom a context trusts: authorities, and their lists of revoked certificates."""

from cutthrough.net.tls.openssl cimport SSL_CTX

cdef enum:
    # Bytes of the certificates that a peer sends. Each takes 30 to 90 us to read, and libssl's own
    # bound of 100 KiB has room for 560: a worker was held for 50 ms. rustls takes as many of servers;
    # those of clients are of the operator's authority, and their chains are short
    MOST_OF_SERVERS = 65535
    MOST_OF_CLIENTS = 32768

# Of a server: its clients' certificates. `authorities` and `revoked`: PEM; empty `revoked`: nobody
# looks. These raise TlsError.
cdef int verify_clients(SSL_CTX *ctx, bytes authorities, bytes revoked, bint required) except -1
cdef int distrust(SSL_CTX *ctx, bytes revoked, str option) except -1
cdef int trust(SSL_CTX *ctx, bytes authorities) except -1
cdef int trust_system(SSL_CTX *ctx) except -1
