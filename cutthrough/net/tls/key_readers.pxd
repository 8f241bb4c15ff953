"""Keys of certificates are read by few readers."""

from cutthrough.net.tls.openssl cimport OSSL_LIB_CTX

# The library for connections to servers; NULL: the default one
cdef OSSL_LIB_CTX *library_of_clients() noexcept
