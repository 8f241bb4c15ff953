"""The workers' knowledge of clients, on one page of memory that all of them share."""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cutthrough.policy.mutex cimport pthread_mutex_t

cdef enum:
    WAYS = 8                # entries of a set
    MOST_OF_USER = 4        # entries of a set that one user may have
    CLAIMS = 256            # hashes under computation at a time, by all workers
    N_MARKS = 5             # tables of marks

# The key of credentials: keyed hashes of three things.
cdef struct Key:
    uint64_t tag[2]         # of the credentials
    uint64_t record[2]      # of the record of the user that they name
    uint64_t name           # of the name

# Credentials that were verified. Times are microseconds of CLOCK_MONOTONIC, which is one
# clock for all processes of a host.
cdef struct Proof:
    Key key
    int64_t since_us        # time of the last verification; 0: the entry is free

# A count of events in a row.
cdef struct Mark:
    uint64_t tag[2]
    int64_t at_us           # time of the last event; 0: the entry is free
    uint64_t count

# Credentials whose hash a worker computes now.
cdef struct Claim:
    Key key
    int64_t until_us        # end of the claim; 0: the entry is free
    int64_t pid             # of the worker

cdef struct Header:
    uint64_t magic
    uint64_t bytes
    uint64_t key[2]
    uint64_t proof_sets     # a power of two
    uint64_t mark_sets      # of each table of marks; a power of two
    uint64_t proved         # number of verifications that were recorded
    uint64_t repairs        # times that the lock's owner had died
    pthread_mutex_t lock
    Claim claims[CLAIMS]
    # follows: Proof[proof_sets][WAYS], Mark[N_MARKS][mark_sets][WAYS]

cdef class Known:
    cdef Header *page
    cdef Proof *proofs
    cdef Mark *marks
    cdef readonly object memory
    cdef int64_t pid
    cdef readonly int evicted       # proofs in use that this worker overwrote
    cdef readonly int forgotten     # marks in use that this worker overwrote

    # Returns when these credentials were last verified against this record; 0: not known.
    cdef int64_t recall(self, const Key *key) noexcept nogil
    # Records a verification.
    cdef void prove(self, const Key *key, int64_t now_us) noexcept nogil

    cdef void _lock(self) noexcept nogil
    # These three need the lock. _mark returns NULL if there is no such mark; with `make` it
    # makes one.
    cdef Proof *_find(self, const Key *key) noexcept nogil
    cdef Proof *_place(self, uint64_t name) noexcept nogil
    cdef Mark *_mark(self, int table, const uint64_t *tag, bint make) noexcept nogil
    cdef void _end_claims(self, int64_t pid, const Key *key) noexcept nogil
    cdef void _tag_of(self, bytes name, uint64_t *tag) noexcept
