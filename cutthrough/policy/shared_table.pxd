"""One page of memory, shared by all workers: rows with a number for each worker slot."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from cutthrough.policy.mutex cimport pthread_mutex_t

# What may be counted of a row; one number for each worker slot.
cdef enum Column:
    CONNECTIONS = 0
    TUNNELS
    N_COLUMNS

cdef struct Row:
    uint64_t tag[2]         # keyed hash of the name
    uint32_t next           # in its chain, or among the free: a number, 0 ends it
    uint32_t is_used
    # Of a user, all under the lock. Times are microseconds of CLOCK_MONOTONIC, which is
    # one clock for all processes of a host.
    double requests         # tokens
    int64_t requests_us     # as of this time
    double bytes            # tokens
    int64_t bytes_us
    int64_t brim_us         # when the bytes' was full last
    int64_t full_us         # both are full again: the row can be forgotten
    int32_t day             # days of the epoch, UTC
    int32_t away_day
    int64_t day_bytes       # moved on that day
    # For a fleet: what `away` tells others, and what it was told last
    int64_t spent           # tokens of requests, taken here
    double rate             # of the request that took the last one
    double burst
    int64_t away_bytes      # of the day's, moved elsewhere on `away_day`
    int64_t away_spent
    uint32_t away_base      # 0: never told
    # behind it: uint32_t held[N_COLUMNS][slots]

cdef struct Table:
    uint64_t buckets_at     # bytes from the page's begin
    uint64_t rows_at
    uint32_t capacity       # rows, and chains: a power of two
    uint32_t fresh          # rows from here on were never used; row 0 never is
    uint32_t free           # head of the list of free ones
    uint32_t used
    uint64_t full           # times that no row was to be had (R31)
    int64_t swept_us

cdef struct Header:
    uint64_t magic
    uint64_t bytes
    uint32_t slots          # holders that there is room for
    uint32_t seen           # of these, the first ones that were ever used
    uint32_t stride         # bytes of a row with its columns
    uint64_t key[2]
    uint64_t repairs        # locks whose owner had died
    uint64_t underflows     # releases of what was not held: none, ever
    Table clients
    Table users
    pthread_mutex_t lock
    # behind it: uint32_t connections[slots], tallies[slots]

cdef class SharedTable:
    cdef Header *page
    cdef uint32_t *all              # connections of each slot
    cdef uint32_t *tallies          # how often each one's numbers were begun anew
    cdef object memory              # keeps it alive
    cdef readonly int slot

    cdef void tag_of(self, const unsigned char *name, size_t n, uint64_t *tag) noexcept nogil
    # The rest is called with the lock held; a row's number, 0: there is none.
    cdef void _lock(self) noexcept nogil
    cdef void _unlock(self) noexcept nogil
    cdef Row *_row(self, Table *table, uint32_t number) noexcept nogil
    cdef uint32_t *_held(self, Row *row, int column) noexcept nogil
    cdef uint64_t _sum(self, const uint32_t *columns) noexcept nogil
    cdef uint32_t _find(self, Table *table, const uint64_t *tag) noexcept nogil
    cdef uint32_t _make(self, Table *table, const uint64_t *tag, int64_t now_us) noexcept nogil
    # One less of this worker's; the row goes when it is spent.
    cdef void _release(self, Table *table, uint32_t number, int column,
                       int64_t now_us) noexcept nogil
    cdef uint32_t *_bucket(self, Table *table, const uint64_t *tag) noexcept nogil
    cdef bint _is_spent(self, Row *row, int64_t now_us) noexcept nogil
    cdef void _drop(self, Table *table, uint32_t number) noexcept nogil
    cdef void _sweep(self, Table *table, int64_t now_us) noexcept nogil
    cdef void _repair(self, Table *table) noexcept nogil
    cdef void _clear(self, Table *table, uint32_t slot) noexcept nogil
    cdef uint64_t _count(self, Table *table, int slot) noexcept nogil
