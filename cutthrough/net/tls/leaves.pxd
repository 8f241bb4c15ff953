"""Certificates that are made for the connections of an interception."""

from cutthrough.net.tls.context cimport TlsContext
from cutthrough.net.tls.openssl cimport EVP_PKEY, SSL, X509

# The side of a server that shows, for each name, a certificate of our own authority.
cdef class TlsInterceptor(TlsContext):
    cdef X509 *issuer
    cdef EVP_PKEY *issuer_key
    cdef list constraints       # on names: of the authority, and of those above it
    cdef dict leaves            # name -> Leaf, the oldest first
    cdef dict forbidden         # name -> why no leaf may have it, the oldest first
    cdef Py_ssize_t most        # of each
    cdef void *extensions[5]    # those that all leaves have in common
    cdef long first_s, last_s   # the authority's time, in seconds of the epoch
    cdef readonly unsigned long minted, found

    cdef int constrain(self, X509 *authority) except -1
    cdef object make(self, bytes name)
    cdef str why_forbidden(self, made)
    cdef void *extension(self, int kind, const char *text) except NULL
