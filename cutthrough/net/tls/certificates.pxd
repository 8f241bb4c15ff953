"""Certificates and keys: read from PEM, and the names in them."""

from cutthrough.net.tls.openssl cimport ASN1_TIME, BIO, EVP_PKEY, SSL, X509, password_callback

cdef class Loaded:
    """A certificate as libcrypto has it; the first of a pair also has the others."""
    cdef X509 *leaf
    cdef EVP_PKEY *key          # NULL: an authority's, or one of a chain
    cdef readonly list chain    # more Loaded, certificates only
    cdef readonly object pair   # the Pair
    cdef readonly object about  # the Certificate

# Raises TlsError if certificate and key cannot be read, or do not belong together.
cdef Loaded load(pair)
# Every certificate of a PEM, at least one. Raises TlsError, which has this name.
cdef list read_certificates(bytes data, name)
# A source for libcrypto's readers; the caller frees it. `data` must outlive it.
cdef BIO *open_bytes(bytes data) except NULL
cdef int no_password(char *out, int n, int writes, void *arg) noexcept nogil
# The text, and libcrypto's reason if there is one; empties its queue.
cdef str why(str text)
# libcrypto's reason; "": there is none.
cdef str words_of(unsigned long error)
# The name in a client's certificate; None: none.
cdef bytes name_in(X509 *certificate)
# Seconds of the epoch.
cdef long seconds_of(const ASN1_TIME *time) except? -1
# Before libssl reads this message, which is a Certificate with its header: makes it malformed if it
# has too many certificates.
cdef void refuse_many(SSL *ssl, const void *message, size_t n) noexcept nogil
