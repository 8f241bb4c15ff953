# cython: language_level=3, boundscheck=False, wraparound=False
"""The authorities of a context: from a file or the system's, with their lists of revoked
certificates."""

import os
from ssl import get_default_verify_paths

from cutthrough.net.tls cimport openssl
from cutthrough.net.tls.certificates cimport Loaded, no_password, open_bytes, read_certificates, why
from cutthrough.net.tls.certificates import TlsError
from cutthrough.net.tls.openssl cimport BIO, SSL_CTX, X509_CRL

cdef int verify_clients(SSL_CTX *ctx, bytes authorities, bytes revoked, bint required) except -1:
    cdef Loaded certificate
    trust(ctx, authorities)
    for certificate in read_certificates(authorities, "client_ca"):
        openssl.SSL_CTX_add_client_CA(ctx, certificate.leaf)
    if revoked:
        distrust(ctx, revoked, "client_crl")
    openssl.SSL_CTX_set_verify(
        ctx, openssl.SSL_VERIFY_PEER
        | (openssl.SSL_VERIFY_FAIL_IF_NO_PEER_CERT if required else 0), openssl.LIBSSL_VERIFY)
    return 0


cdef int distrust(SSL_CTX *ctx, bytes revoked, str option) except -1:
    """If a certificate's authority has no list there, the certificate is not accepted either."""
    cdef openssl.X509_STORE *store = openssl.SSL_CTX_get_cert_store(ctx)
    cdef X509_CRL *crl
    cdef BIO *source = open_bytes(revoked)
    n = 0
    try:
        while True:
            crl = openssl.PEM_read_bio_X509_CRL(source, NULL, no_password, NULL)
            if crl == NULL:
                break
            openssl.X509_STORE_add_crl(store, crl)
            openssl.X509_CRL_free(crl)
            n += 1
    finally:
        openssl.BIO_free(source)
    if n == 0:
        raise TlsError(option, why("holds no list of revoked certificates"))
    openssl.ERR_clear_error()
    openssl.X509_STORE_set_flags(store, openssl.X509_V_FLAG_CRL_CHECK)
    return 0


cdef int trust(SSL_CTX *ctx, bytes authorities) except -1:
    cdef openssl.X509_STORE *store = openssl.SSL_CTX_get_cert_store(ctx)
    cdef Loaded certificate
    for certificate in read_certificates(authorities, "the file of authorities"):
        openssl.X509_STORE_add_cert(store, certificate.leaf)
    # An authority in the file is trusted even if it is not a root
    openssl.X509_STORE_set_flags(store, openssl.X509_V_FLAG_PARTIAL_CHAIN)
    openssl.ERR_clear_error()               # the same certificate twice
    return 0


cdef int trust_system(SSL_CTX *ctx) except -1:
    """The libssl of a wheel was built on another system: if its file of authorities is not here, the
    file is that of Python's ssl."""
    if not openssl.SSL_CTX_set_default_verify_paths(ctx):
        raise TlsError("", why("the system's authorities cannot be read"))
    file = get_default_verify_paths().cafile
    if file is None or "SSL_CERT_FILE" in os.environ or os.path.exists(
            openssl.X509_get_default_cert_file()):
        return 0
    if not openssl.SSL_CTX_load_verify_locations(ctx, os.fsencode(file), NULL):
        raise TlsError("", why(f"{file}: the system's authorities cannot be read"))
    return 0
