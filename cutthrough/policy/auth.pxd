"""Basic authentication (RFC 7617), repeated for each request (R21-R23)."""

from libc.stdint cimport int64_t, uint64_t
from cutthrough.policy.known cimport Key, Known

cdef enum Verdict:
    KNOWN = 0               # authenticate() returned the account
    MISSING
    REFUSED
    PENDING                 # not cached: call compare() or hash_to_verify(), then remember()

cdef class Account:
    """A user of one generation: the identity, not the permissions."""
    cdef readonly bytes name
    cdef readonly tuple groups
    cdef readonly double expires    # seconds of the epoch; 0: never
    cdef readonly int index         # among the accounts of its Authenticator
    cdef bytes subjects             # bitmap from Acl.subjects_of; None: not computed yet

    cdef bint has_expired(self) noexcept

cdef class Verified:
    cdef uint64_t tag[2]            # keyed hash of the credentials
    cdef Account account
    cdef int64_t until_us           # of CLOCK_MONOTONIC

cdef class Authenticator:
    cdef readonly Account anonymous     # its name is empty, which no user's is
    cdef dict verified      # cache of this worker: keyed hash of credentials -> Verified
    cdef list recent        # Verified or None, by bits of its tag: a Python dict takes 0.1 us more
    cdef dict accounts      # name -> Account
    cdef dict digests       # name -> digest of a password from the configuration
    cdef dict hashes        # name -> hash as htpasswd(1) writes it
    cdef dict records       # name -> keyed hash of the record of a user in `digests`
    cdef readonly Known known       # verified credentials that all workers share
    cdef object salt, dummy_digest, dummy_hash
    cdef uint64_t key[2]
    cdef int64_t ttl_us             # how long verified credentials are cached
    cdef int bound                  # of `verified`, in entries
    cdef object groups_of           # name as str -> groups, of certified names; None: no groups
    cdef dict strangers             # name -> Account, of certificates of no user in `accounts`
    cdef readonly int evicted       # entries of `verified` that made room for others

    # `value` is the value of the Proxy-Authorization field; NULL, with n 0: no field.
    # Returns the account and sets KNOWN, or returns None and sets another verdict. `now_us`
    # is CLOCK_MONOTONIC. Raises only MemoryError.
    cdef Account authenticate(self, const char *value, size_t n, int64_t now_us, int *verdict)
    # The account of a name that a certificate proves.
    cdef Account certified(self, bytes name)
    cdef Account _recall(self, bytes tag, bytes name, int64_t now_us)
    cdef int _make_key(self, bytes tag, bytes name, Key *key) except -1
    cdef bytes _hashed(self, bytes data)
    cdef bint _remember(self, bytes tag, Account account, int64_t since_us,
                        int64_t now_us) except -1
