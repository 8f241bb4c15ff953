"""A page of memory that all workers share: rows with a number for each worker slot."""

from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from cutthrough.policy.mutex cimport pthread_mutex_t

# The counts of a row; each has a number for every worker slot.
cdef enum Column:
    CONNECTIONS = 0
    TUNNELS
    N_COLUMNS

# Tokens of bytes. Times are microseconds of CLOCK_MONOTONIC, which is one clock for all processes
# of a host.
cdef struct Bucket:
    double tokens
    int64_t at_us           # time of `tokens`; 0: never used
    int64_t full_us         # when it was last full

# What is left of one table of limits, while a request under another has the row's own fields.
cdef struct Buckets:
    uint32_t table          # its number; 0: free
    double requests
    int64_t requests_us
    Bucket bytes
    Bucket lanes[2]

cdef enum:
    MOST_BUCKETS = 3        # beside the row's own

cdef struct Row:
    uint64_t tag[2]         # keyed hash of the name
    uint32_t next           # row number, in its chain or in the free list; 0: the end
    uint32_t is_used
    # Only for users. Times as of a Bucket
    uint32_t table          # whose the next four are: UserLimits.table; 0: nobody's yet
    double requests         # tokens of the bucket for requests
    int64_t requests_us     # time of `requests`; 0: never used
    Bucket bytes            # of both directions together
    Bucket lanes[2]         # of each, up and down
    Buckets others[MOST_BUCKETS]
    int64_t full_us         # when all buckets are full and the quota is new: may be dropped
    int32_t day             # days of the epoch, UTC
    int32_t other_day       # the day before `day`, or after it if the clock was set back
    int64_t day_bytes       # moved on `day`
    int64_t other_bytes     # moved on `other_day`
    # For a fleet: what `remote_usage` reports to others, and the last report of theirs
    int64_t spent           # tokens of requests spent here, in total
    double rate             # limits of the request that took the last token
    double burst
    int64_t remote_bytes    # the part of day_bytes moved elsewhere
    int64_t other_remote    # the part of other_bytes moved elsewhere
    int64_t remote_spent    # tokens of requests spent elsewhere, in total
    uint32_t remote_base    # baseline of remote_spent; 0: no report yet
    # follows: uint32_t held[N_COLUMNS][slots]

cdef struct Table:
    uint64_t buckets_at     # offset in the page, bytes
    uint64_t rows_at        # likewise
    uint32_t capacity       # rows, and chains: a power of two
    uint32_t fresh          # first row that was never used; row 0 stands for none
    uint32_t free           # head of the list of free rows; 0: empty
    uint32_t used           # number of rows in use
    uint64_t full           # times that no row was available (R31)
    int64_t swept_us        # when the full table was last swept

cdef struct Header:
    uint64_t magic
    uint64_t bytes
    uint32_t slots          # number of holders that have room
    uint32_t seen           # holders from here on were never used
    uint32_t stride         # bytes of a row with its columns
    uint64_t key[2]
    uint64_t repairs        # times that the lock's owner had died
    uint64_t underflows     # releases of a count that was 0: always 0
    Table clients
    Table users
    pthread_mutex_t lock
    # follows: uint32_t connections[slots], tallies[slots]

cdef class SharedTable:
    cdef Header *page
    cdef uint32_t *all              # connections, by slot
    cdef uint32_t *tallies          # by slot: how often its numbers were reset
    cdef object memory              # the owner of `page`
    cdef readonly int slot

    cdef void tag_of(self, const unsigned char *name, size_t n, uint64_t *tag) noexcept nogil
    cdef void _lock(self) noexcept nogil
    cdef void _unlock(self) noexcept nogil
    # The rest needs the lock. A row's number is 0 if there is no row.
    cdef Row *_row(self, Table *table, uint32_t number) noexcept nogil
    cdef uint32_t *_held(self, Row *row, int column) noexcept nogil
    cdef uint64_t _sum(self, const uint32_t *columns) noexcept nogil
    cdef uint32_t _find(self, Table *table, const uint64_t *tag) noexcept nogil
    cdef uint32_t _make(self, Table *table, const uint64_t *tag, int64_t now_us) noexcept nogil
    # Takes one from this worker's number; drops the row if it is spent.
    cdef void _release(self, Table *table, uint32_t number, int column,
                       int64_t now_us) noexcept nogil
    cdef uint32_t *_bucket(self, Table *table, const uint64_t *tag) noexcept nogil
    cdef bint _is_spent(self, Row *row, int64_t now_us) noexcept nogil
    cdef void _drop(self, Table *table, uint32_t number) noexcept nogil
    cdef void _sweep(self, Table *table, int64_t now_us) noexcept nogil
    cdef void _repair(self, Table *table) noexcept nogil
    cdef void _clear(self, Table *table, uint32_t slot) noexcept nogil
    cdef uint64_t _count(self, Table *table, int slot) noexcept nogil
