"""What all workers know of credentials, on one page of shared memory."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cutthrough.policy.mutex cimport pthread_mutex_t

cdef enum:
    WAYS = 8                # entries of a set
    MOST_OF_USER = 4        # of these, one user's
    CLAIMS = 256            # credentials whose hash is computed now, by all workers
    N_MARKS = 4

# Credentials, as everything here knows them: keyed hashes of three things.
cdef struct Key:
    uint64_t tag[2]         # the credentials
    uint64_t record[2]      # the record of the user that they name
    uint64_t who            # the name

# Credentials that were right. Times are microseconds of CLOCK_MONOTONIC, which is one
# clock for all processes of a host.
cdef struct Proof:
    Key key
    int64_t since_us        # 0: the entry is free

# How often something happened in a row, and when last.
cdef struct Mark:
    uint64_t tag[2]
    int64_t at_us           # 0: the entry is free
    uint64_t count

cdef struct Claim:
    Key key
    int64_t until_us        # 0: the entry is free
    int64_t pid

cdef struct Header:
    uint64_t magic
    uint64_t bytes
    uint64_t key[2]
    uint64_t proof_sets     # a power of two
    uint64_t mark_sets      # of each table of marks; a power of two
    uint64_t proved         # how often credentials were noted
    uint64_t repairs        # locks whose owner had died
    pthread_mutex_t lock
    Claim claims[CLAIMS]
    # behind it: Proof[proof_sets][WAYS], Mark[N_MARKS][mark_sets][WAYS]

cdef class Known:
    cdef Header *page
    cdef Proof *proofs
    cdef Mark *marks
    cdef readonly object memory
    cdef int64_t pid
    cdef readonly int evicted       # proofs that this worker overwrote while they counted
    cdef readonly int forgotten     # marks that this worker overwrote

    # When these credentials were verified against this record; 0: that is not known.
    cdef int64_t recall(self, const Key *key) noexcept nogil
    cdef void prove(self, const Key *key, int64_t now_us) noexcept nogil
    # The rest is called with the lock held.
    cdef void _lock(self) noexcept nogil
    cdef Proof *_find(self, const Key *key) noexcept nogil
    cdef Proof *_place(self, uint64_t who) noexcept nogil
    # NULL: there is none, or with `make` a new one.
    cdef Mark *_mark(self, int table, const uint64_t *tag, bint make) noexcept nogil
    cdef void _end_claims(self, int64_t pid, const Key *key) noexcept nogil
    cdef void _tag_of(self, bytes name, uint64_t *tag) noexcept
