"""Who holds how much of what is limited, exactly, over all workers."""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from cutthrough.policy.shared_table cimport Row, SharedTable, Table

cdef enum:
    DAY_S = 86400

# How an entry was answered.
cdef enum Entry:
    ENTERED = 0
    OVER_ALL                # all connections together
    OVER_CLIENT             # of this address
    OVER_CONNECTIONS        # of this user
    OVER_TUNNELS
    OVER_RATE               # requests per second; *retry_s
    OVER_QUOTA              # bytes of today; *retry_s
    NO_ROW                  # the table is full: nothing is known, so nothing passes

# What one client connection holds. Zeroed: nothing. Only the functions here write it.
cdef struct Holding:
    uint32_t client_row
    uint32_t user_row       # pinned, and counted among the user's connections
    uint8_t is_counted      # among all connections
    uint8_t has_tunnel

# What is asked of a user's row. 0: no limit.
cdef struct Dues:
    uint32_t connections
    uint32_t tunnels
    double requests_per_second
    double burst
    double bytes_per_second
    double depth            # bytes that the user's bucket holds
    int64_t bytes_per_day

cdef struct Answer:
    int64_t granted         # bytes
    int64_t left_today      # bytes; INT64_MAX: there is no quota
    int64_t wait_us         # until there is something to grant

cdef inline int64_t day_bytes_of(Row *row, int64_t now_s) noexcept nogil:
    if row.day != now_s // DAY_S:
        row.day_bytes = 0
        row.day = now_s // DAY_S
    return row.day_bytes

cdef inline double tokens_of(double tokens, int64_t *as_of_us, double rate, double depth,
                             int64_t now_us) noexcept nogil:
    """A bucket's tokens now. One that was never asked is full. Workers read the clock at
    the begin of a batch, so the time of one may lie a little before another's."""
    cdef int64_t passed_us = now_us - as_of_us[0]
    if as_of_us[0] == 0:
        tokens = depth
    if passed_us > 0:
        tokens += passed_us * rate / 1e6
        as_of_us[0] = now_us
    return min(tokens, depth)

cdef class Ledger(SharedTable):
    # A connection comes in. An Entry; ENTERED: `holding` says what leave() gives back.
    cdef Entry enter(self, Holding *holding, uint32_t most, const uint64_t *client,
                     uint32_t most_of_client) noexcept nogil
    # A request of this user: its connection, its token, its tunnel. An Entry. The
    # connection stays the user's until leave(), or until another user's request.
    cdef Entry charge(self, Holding *holding, const uint64_t *user, const Dues *dues,
                      bint is_tunnel, int64_t now_us, int64_t now_s,
                      uint32_t *retry_s) noexcept nogil
    # Undoes that, with the connection: another charge follows.
    cdef void uncharge(self, Holding *holding, const Dues *dues, int64_t now_us) noexcept nogil
    # The connection turns into a tunnel without a further request (101).
    cdef Entry charge_tunnel(self, Holding *holding, const Dues *dues) noexcept nogil
    # Books `used` bytes, gives back `unused` of those granted at `granted_us`, and asks
    # for `want`.
    cdef Answer draw(self, Holding *holding, const Dues *dues, int64_t used, int64_t unused,
                     int64_t granted_us, int64_t want, int64_t now_us,
                     int64_t now_s) noexcept nogil
    cdef void end_tunnel(self, Holding *holding) noexcept nogil
    # Idempotent: everything that the connection holds.
    cdef void leave(self, Holding *holding, int64_t now_us) noexcept nogil
    # The connection's next request may be another's, who has no limits.
    cdef void leave_user(self, Holding *holding, int64_t now_us) noexcept nogil
    # A connection changes its worker: what it holds is counted for holder `number`. It
    # holds it still, but only that worker may give it back. Returns that one's tally: where
    # it has another by now, what was lent is counted nowhere.
    cdef uint32_t lend(self, const Holding *holding, int number) noexcept nogil
    # Of our own numbers.
    cdef uint32_t tally(self) noexcept nogil
    # The other way round: all that `holding` names is counted for us; where `number` is
    # >= 0 that holder counted it, unless it has another tally by now. Rows are found by
    # their tags, because those of one counted nowhere may be others' by now. No limit is
    # asked. False: there was no row for a part, which `holding` no longer names.
    cdef bint claim(self, Holding *holding, int number, uint32_t tally,
                    const uint64_t *client, const uint64_t *user,
                    int64_t now_us) noexcept nogil
    # Counts all that we hold anew: begin, add each connection's, and end. The page is
    # locked meanwhile.
    cdef void begin_recount(self) noexcept nogil
    cdef void add_recounted(self, const Holding *holding) noexcept nogil
    cdef void end_recount(self) noexcept nogil
    cdef void _leave_user(self, Holding *holding, int64_t now_us) noexcept nogil
    cdef void _zero(self, Table *table) noexcept nogil
    cdef void _drop_spent(self, Table *table) noexcept nogil
