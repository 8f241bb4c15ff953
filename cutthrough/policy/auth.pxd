"""Who is it? Basic authentication (RFC 7617), for each request anew (R21-R23)."""

from libc.stdint cimport uint64_t

cdef enum Verdict:
    KNOWN = 0               # *user is set
    MISSING
    REFUSED

cdef class Authenticator:
    cdef dict verified      # keyed hash of the credentials -> user: who, never what
    cdef dict users         # user name -> digest of the password
    cdef object salt, no_digest
    cdef uint64_t key[2]
    cdef int bound

    # `value` is the Proxy-Authorization field's value; n 0 and NULL: there is none.
    # KNOWN: user[0] is the name (bytes). Raises nothing but MemoryError.
    cdef tuple identify(self, const char *value, size_t n)

cdef void keyed_hash(const uint64_t *key, const unsigned char *data, size_t n,
                     uint64_t *out) noexcept nogil
