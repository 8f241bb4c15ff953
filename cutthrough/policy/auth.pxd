"""Who is it? Basic authentication (RFC 7617), for each request anew (R21-R23)."""

from libc.stdint cimport int64_t, uint64_t
from cutthrough.policy.known cimport Key, Known

cdef enum Verdict:
    KNOWN = 0               # authenticate() returned the account
    MISSING
    REFUSED
    PENDING                 # not remembered: compare() or question(), then remember()

cdef class Account:
    """Somebody, as of one generation: who, never what is allowed."""
    cdef readonly bytes name
    cdef readonly tuple groups
    cdef readonly double expires    # seconds of the epoch; 0: never
    cdef readonly int index         # of this account among its authenticator's
    cdef bytes who                  # what the compiled rules know it by; None: not asked yet

    cdef bint has_expired(self) noexcept

cdef class Verified:
    cdef Account account
    cdef int64_t until_us           # of CLOCK_MONOTONIC

cdef class Authenticator:
    cdef dict verified      # keyed hash of the credentials -> Verified: who, never what
    cdef dict accounts      # name -> Account
    cdef dict digests       # name -> digest of a password that the configuration gave
    cdef dict hashes        # name -> hash as htpasswd(1) writes it
    cdef dict records       # name -> hash of such a user's record
    cdef readonly Known known       # what all workers know of credentials
    cdef object salt, no_digest, no_hash, check_hash
    cdef uint64_t key[2]
    cdef int64_t ttl_us
    cdef int bound
    cdef readonly int evicted       # remembered ones that made room for others

    # `value` is the Proxy-Authorization field's value; n 0 and NULL: there is none.
    # Returns the account and sets KNOWN, or None and another verdict. `now_us` is of
    # CLOCK_MONOTONIC. Raises nothing but MemoryError.
    cdef Account authenticate(self, const char *value, size_t n, int64_t now_us, int *verdict)
    cdef Account _recall(self, bytes tag, bytes name, int64_t now_us)
    cdef int _make_key(self, bytes tag, bytes name, Key *key) except -1
    cdef bytes _hashed(self, bytes data)
    cdef bint _remember(self, bytes tag, Account account, int64_t since_us,
                        int64_t now_us) except -1
