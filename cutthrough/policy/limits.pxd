"""The limits of users, and the allowance of bytes of a relay."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from cutthrough.policy.ledger cimport Entry, Holding, Ledger, UserLimits

cdef enum:
    SETTLE_US = 1000000         # how often a quota is checked while a relay runs
    FRESH_US = 31250            # how long an allowance is valid: a quantum at its rate

# One direction of one relay. It gets an allowance of bytes, reads as many, and calls refill
# for the next one.
cdef struct Lane:
    int64_t granted             # bytes of the current allowance
    int64_t drawn               # bytes drawn from the user's row for it
    int64_t granted_us          # time of the allowance
    double tokens               # of the tunnel's own bucket
    int64_t tokens_us           # time of `tokens`
    int64_t wait_us             # after an allowance of 0: until the next; else 0
    int number                  # 0: up, 1: down
    bint is_awaited             # bytes that are written here wait for the allowance, whatever is read

# Both directions of a request that has a limit in bytes.
cdef struct Meter:
    Lane up
    Lane down
    int64_t settled_us          # when settle was last called

# Everything that one client connection uses. Zeroed: nothing.
cdef struct Usage:
    Holding holding
    uint32_t place              # the session's: in its worker's places; 0: not listed
    Meter *meter                # NULL: the current request has no limit in bytes

# Seconds until midnight UTC, when quotas start again.
cdef uint32_t seconds_left_today() noexcept nogil

cdef class Terms:
    """One set of limits, ready for use."""
    cdef UserLimits limits
    cdef double tunnel_rate     # bytes per second, each direction
    cdef double tunnel_depth    # bytes that a tunnel's bucket holds
    cdef int64_t quantum        # bytes drawn at a time
    cdef bint has_bytes         # is there any limit in bytes?
    # of faults, see policy.faults; 0: no bound
    cdef int64_t bandwidth      # bytes per second, each direction, of requests too
    cdef int64_t most_bytes     # in either direction
    cdef object plain           # the source.Limits
    cdef object name            # its table's; None: of faults alone
    cdef bint per_user          # else by `subject`
    # What is counted together, as the name of a user that nobody can have
    cdef bytes subject(self, int family, const uint8_t *data)

# Do these limit alike? None: no limits.
cdef bint are_equal(Terms a, Terms b)

# May a lane go on with its allowance? Refilling early avoids reads that the end of an allowance
# cuts short. An old allowance does not count, because the bucket has filled up since: both
# together would allow a burst of twice the limit.
cdef inline bint has_allowance(const Lane *lane, Terms terms, int64_t left,
                               int64_t now_us) noexcept:
    return left > terms.quantum // 4 and now_us - lane.granted_us < FRESH_US

cdef class Limiter:
    """The limits of each user, and the ledger that counts."""
    cdef readonly Ledger ledger
    cdef uint32_t most, most_of_client      # connections; 0: no limit
    cdef dict by_name, by_user              # name of limits, name of user -> Terms or None
    cdef dict faulty                        # (Terms, bandwidth, bytes) -> Terms
    cdef Terms default

    # Counts a new connection, as Ledger.enter. `data` is the client's address in network order.
    cdef Entry enter(self, Usage *usage, int family, const uint8_t *data) noexcept
    # Returns the Terms that apply; None: no limits. `limits` is a name that takes precedence
    # over the user's own limits, or None.
    cdef Terms terms_of(self, bytes user, object limits)
    # Returns these Terms (None: no limits) with bounds by faults; 0: no bound.
    cdef Terms with_faults(self, Terms terms, int64_t bandwidth, int64_t most_bytes)
    # Charges a request, as Ledger.charge. `user`: here and below, what is counted, a user's name
    # or Terms.subject. ENTERED: call end_request at its end.
    cdef Entry charge(self, Usage *usage, Terms terms, bytes user, bint is_tunnel,
                      int64_t now_us, uint32_t *retry_s) noexcept
    # Undoes the charge of this request, because other limits turn out to apply.
    cdef void uncharge(self, Usage *usage, Terms terms, int64_t *up_left, int64_t *down_left,
                       int64_t now_us) noexcept
    # Gives the lane its next allowance. *left is the unused part of the last one, and becomes
    # the new one in bytes; 0: none until lane.wait_us has passed. False: the quota is used up.
    cdef bint refill(self, Usage *usage, Lane *lane, Terms terms, bint is_tunnel,
                     int64_t *left, int64_t now_us) noexcept
    # Books the bytes that both lanes used, gives back the rest, and ends their allowances.
    cdef void settle(self, Usage *usage, Terms terms, int64_t *up_left, int64_t *down_left,
                     int64_t now_us) noexcept
    cdef void _settle_lane(self, Usage *usage, Lane *lane, Terms terms, int64_t *left,
                           int64_t now_us) noexcept
    # Settles a request's bytes, and frees its meter. Does nothing without one.
    cdef void end_meter(self, Usage *usage, Terms terms, int64_t *up_left, int64_t *down_left,
                        int64_t now_us) noexcept
    # Ends a request: settles it and ends its tunnel. Does nothing if `terms` is None.
    cdef void end_request(self, Usage *usage, Terms terms, int64_t *up_left,
                          int64_t *down_left, int64_t now_us) noexcept
    # Takes over a connection that another process accepted: counts everything that is limited
    # here and not in `usage` yet. No limit refuses it; NO_ROW: a table is full. `terms` may be
    # None.
    cdef Entry adopt(self, Usage *usage, Terms terms, bytes user, bint is_tunnel, int family,
                     const uint8_t *data, int64_t now_us) noexcept
    # A request under way gets other limits, after `end_meter`: its row keeps what it has used,
    # and its lanes begin anew. If these limits count something else together, it changes its row.
    # No limit refuses it; NO_ROW: a table is full. `terms` may be None.
    cdef Entry change(self, Usage *usage, Terms terms, bytes user, bint is_tunnel, int family,
                      const uint8_t *data, int64_t now_us) noexcept
    # Moves this connection's counts to holder `number` on the same page, and returns the tally
    # of that holder. `reclaim` moves them back if the holder refuses the connection, or is gone.
    cdef uint32_t lend(self, Usage *usage, int number) noexcept
    cdef void reclaim(self, Usage *usage, int number, uint32_t tally, bytes user,
                      int family, const uint8_t *data, int64_t now_us) noexcept
    cdef bint _claim(self, Holding *holding, int number, uint32_t tally, bytes user,
                     int family, const uint8_t *data, int64_t now_us) noexcept
    # Gives back everything when the connection closes. Idempotent (R33).
    cdef void leave(self, Usage *usage, int64_t now_us) noexcept
