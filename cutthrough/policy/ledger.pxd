"""Exact counts of everything that is limited, over all workers."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from cutthrough.policy.shared_table cimport (
    MOST_BUCKETS, Bucket, Buckets, Row, SharedTable, Table)

cdef enum:
    DAY_S = 86400

# The answer to a connection or request: ENTERED, or the limit that refuses it.
cdef enum Entry:
    ENTERED = 0
    OVER_ALL                # all connections together
    OVER_CLIENT             # connections of this address
    OVER_CONNECTIONS        # connections of this user
    OVER_TUNNELS
    OVER_RATE               # requests per second; sets *retry_s
    OVER_QUOTA              # bytes of today; sets *retry_s
    NO_ROW                  # the table is full: usage is unknown, so it is refused

# The counts that one client connection holds. Zeroed: none. Only the functions here write it.
cdef struct Holding:
    uint32_t client_row     # number of the client's row; 0: not counted there
    uint32_t user_row       # likewise; while set, the row is not dropped
    uint32_t most           # the limit that it was counted there under; 0: none, or not known
    uint8_t is_counted      # among all connections
    uint8_t has_tunnel      # among the user's tunnels

# The limits of a user. 0: no limit.
cdef struct UserLimits:
    uint32_t table          # number of its name: each table has buckets of its own; 0: no rates
    uint32_t connections
    uint32_t tunnels
    double requests_per_second
    double burst
    double bytes_per_second
    double depth            # bytes that the user's bucket holds
    double lane_rate[2]     # bytes per second of a direction, up and down …
    double lane_depth[2]    # … and the bytes that its bucket holds
    int64_t bytes_per_day

# A draw on a user's row, in bytes. The caller's, on its stack.
cdef struct Draw:
    int64_t used            # of the last grant
    int64_t unused          # of the last grant
    int64_t granted_us      # time of the last grant
    int64_t want
    int lane                # the direction: 0, up, or 1, down

cdef struct Grant:
    int64_t bytes           # that may be used
    int64_t left_today      # bytes; INT64_MAX: no quota
    int64_t wait_us         # until a further grant is possible; 0: not limited by the rate

cdef inline int64_t day_bytes_of(Row *row, int64_t now_s) noexcept nogil:
    """Returns the bytes that were moved today. Two days are kept, because nothing must be forgiven
    if a clock is set to another day and back."""
    cdef int64_t before = row.day_bytes, remote = row.remote_bytes
    cdef int32_t day = row.day, today = <int32_t>(now_s // DAY_S)
    if day != today:
        row.day_bytes = row.other_bytes if row.other_day == today else 0
        row.remote_bytes = row.other_remote if row.other_day == today else 0
        row.day = today
        row.other_bytes, row.other_remote = before, remote
        row.other_day = day
    return row.day_bytes

cdef inline double tokens_of(double tokens, int64_t *as_of_us, double rate, double depth,
                             int64_t now_us) noexcept nogil:
    """Returns the tokens in a bucket now. A bucket is full before its first use. Workers read
    the clock at the start of a batch, so one worker's time may be a little behind another's."""
    cdef int64_t passed_us = now_us - as_of_us[0]
    if as_of_us[0] == 0:
        tokens = depth
    if passed_us > 0:
        tokens += passed_us * rate / 1e6
        as_of_us[0] = now_us
    return min(tokens, depth)

cdef inline void take_buckets(Row *row, uint32_t table) noexcept nogil:
    """Makes the row's buckets those of this table of limits. One bucket for two rates would fill at
    the higher one, and run over at the lower one's depth. If a user is under more tables than there
    is room for, one takes over the buckets that were used longest ago, as they are."""
    cdef Buckets buckets
    cdef int i, at = 0
    if row.table == table or table == 0:
        return
    for i in range(MOST_BUCKETS):
        if row.others[i].table == table:
            at = i
            break
        if row.others[at].table and used_us(&row.others[i]) < used_us(&row.others[at]):
            at = i
    buckets = row.others[at]               # free: all 0, never used
    if row.table:
        row.others[at].table = row.table
        row.others[at].requests, row.others[at].requests_us = row.requests, row.requests_us
        row.others[at].bytes = row.bytes
        row.others[at].lanes[0], row.others[at].lanes[1] = row.lanes[0], row.lanes[1]
    row.table, row.requests, row.requests_us = table, buckets.requests, buckets.requests_us
    row.bytes = buckets.bytes
    row.lanes[0], row.lanes[1] = buckets.lanes[0], buckets.lanes[1]

cdef inline int64_t used_us(const Buckets *buckets) noexcept nogil:
    """0: free, or never used."""
    return max(buckets.requests_us, buckets.bytes.at_us, buckets.lanes[0].at_us,
               buckets.lanes[1].at_us)

cdef class Ledger(SharedTable):
    # Counts a new connection. ENTERED: leave() gives back the counts in `holding`.
    cdef Entry enter(self, Holding *holding, uint32_t most, const uint64_t *client,
                     uint32_t most_of_client) noexcept nogil
    # Counts a request of this user: its connection, a token, its tunnel. The connection
    # counts as the user's until leave(), or until a request of another user.
    cdef Entry charge(self, Holding *holding, const uint64_t *user, const UserLimits *limits,
                      bint is_tunnel, int64_t now_us, int64_t now_s,
                      uint32_t *retry_s) noexcept nogil
    # Undoes a charge, and the count of the connection, because another charge follows.
    cdef void uncharge(self, Holding *holding, const UserLimits *limits,
                       int64_t now_us) noexcept nogil
    # Counts a tunnel without a further request: the connection was upgraded (101).
    cdef Entry charge_tunnel(self, Holding *holding, const UserLimits *limits) noexcept nogil
    # Books what was used of the last grant, gives back the rest, and requests more.
    cdef Grant draw(self, Holding *holding, const UserLimits *limits, const Draw *draw,
                    int64_t now_us, int64_t now_s) noexcept nogil
    cdef void end_tunnel(self, Holding *holding) noexcept nogil
    # Gives back everything that the connection holds. Idempotent.
    cdef void leave(self, Holding *holding, int64_t now_us) noexcept nogil
    # Gives back the user's part, because the next request is of a user without limits.
    cdef void leave_user(self, Holding *holding, int64_t now_us) noexcept nogil
    # Is the connection counted in this row, or in none?
    cdef bint is_users(self, const Holding *holding, const uint64_t *user) noexcept nogil
    # For a connection that changes its worker: moves its counts to holder `number`, and only
    # that worker may give them back. Returns the tally of that holder. Once the holder has
    # another tally, the counts are gone.
    cdef uint32_t lend(self, const Holding *holding, int number) noexcept nogil
    # Returns the tally of this worker.
    cdef uint32_t tally(self) noexcept nogil
    # The reverse: moves the counts in `holding` to this worker, from holder `number` if that
    # is >= 0 and still has this tally; else they are new. Rows are found by their tags,
    # because a row without counts may belong to another name by now. No limit is checked.
    # False: there was no row for a part, and `holding` no longer has that part.
    cdef bint claim(self, Holding *holding, int number, uint32_t tally,
                    const uint64_t *client, const uint64_t *user,
                    int64_t now_us) noexcept nogil
    # Recounts everything that this worker holds: begin, add each connection, end. The page
    # stays locked from begin to end.
    cdef void begin_recount(self) noexcept nogil
    cdef void add_recounted(self, const Holding *holding) noexcept nogil
    cdef void end_recount(self) noexcept nogil
    cdef void _leave_user(self, Holding *holding, int64_t now_us) noexcept nogil
    cdef void _zero(self, Table *table) noexcept nogil
    cdef void _drop_spent(self, Table *table) noexcept nogil
