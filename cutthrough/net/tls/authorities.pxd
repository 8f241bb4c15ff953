"""Whom a context trusts: authorities, and their lists of revoked certificates."""

from cutthrough.net.tls.openssl cimport SSL_CTX

# Of a server: its clients' certificates. `authorities` and `revoked`: PEM; empty `revoked`: nobody
# looks. These raise TlsError.
cdef int verify_clients(SSL_CTX *ctx, bytes authorities, bytes revoked, bint required) except -1
cdef int distrust(SSL_CTX *ctx, bytes revoked, str option) except -1
cdef int trust(SSL_CTX *ctx, bytes authorities) except -1
cdef int trust_system(SSL_CTX *ctx) except -1
