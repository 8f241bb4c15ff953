"""What one user may use, as numbers; and how a relay asks for its bytes."""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from cutthrough.policy.ledger cimport Dues, Entry, Holding, Ledger

cdef enum:
    SETTLE_US = 1000000         # a quota is looked at this often while a relay runs
    FRESH_US = 31250            # so long is an allowance good: for a quantum at its rate

# One direction of one relay. It is told how many bytes it may read, reads them, and comes
# back for more.
cdef struct Lane:
    int64_t given               # what it was told last
    int64_t drawn               # of the user's bytes: asked for and not used yet
    int64_t asked_us            # when it was told
    double tokens               # of the tunnel's own rate
    int64_t tokens_us
    int64_t wait_us             # until there will be some: it was told 0

# Both directions of a request that has a limit in bytes.
cdef struct Meter:
    Lane up
    Lane down
    int64_t settled_us

# All that one client's connection uses. Zeroed: nothing.
cdef struct Usage:
    Holding holding
    Meter *meter                # NULL: the request in hand has no limit in bytes

# Until midnight UTC, when quotas begin anew.
cdef uint32_t seconds_left_today() noexcept nogil

cdef class Terms:
    """One set of limits, ready for use."""
    cdef Dues dues
    cdef double tunnel_rate     # bytes per second, each direction
    cdef double tunnel_depth
    cdef int64_t quantum        # bytes asked for at a time
    cdef bint has_bytes

# May it go on without asking? Early, so that no read is cut short by the end of an
# allowance. But an old one stands beside a bucket that has filled up meanwhile: both
# together are a burst of twice what it may be.
cdef inline bint may_go_on(const Lane *lane, Terms terms, int64_t left,
                           int64_t now_us) noexcept:
    return left > terms.quantum // 4 and now_us - lane.asked_us < FRESH_US

cdef class Limiter:
    """Which limits apply to whom, and the page on which it is kept count."""
    cdef readonly Ledger ledger
    cdef uint32_t most, most_of_client
    cdef dict by_name, by_user
    cdef Terms default

    # An Entry, as the ledger's. `data` is the client's address in network order.
    cdef Entry enter(self, Usage *usage, int family, const uint8_t *data) noexcept
    # None: no limits. `limits` is a name that goes before the user's own, or None.
    cdef Terms terms_of(self, bytes user, object limits)
    # An Entry. ENTERED: the usage is the request's until end_request.
    cdef Entry charge(self, Usage *usage, Terms terms, bytes user, bint is_tunnel,
                      int64_t now_us, uint32_t *retry_s) noexcept
    # Undoes a charge of this request, which other limits turn out to bind.
    cdef void uncharge(self, Usage *usage, Terms terms, int64_t *up_left, int64_t *down_left,
                       int64_t now_us) noexcept
    # What the lane may read now, given what is left of what it was told: a number of
    # bytes, <= 0: none before lane.wait_us has passed. False: the quota is used up.
    cdef bint refill(self, Usage *usage, Lane *lane, Terms terms, bint is_tunnel,
                     int64_t *left, int64_t now_us) noexcept
    # Books what both lanes used and gives back what they did not; they begin anew.
    cdef void settle(self, Usage *usage, Terms terms, int64_t *up_left, int64_t *down_left,
                     int64_t now_us) noexcept
    cdef void _settle_lane(self, Usage *usage, Lane *lane, Terms terms, int64_t *left,
                           int64_t now_us) noexcept
    # The request ends: the same, and its tunnel. No Terms: nothing to do.
    cdef void end_request(self, Usage *usage, Terms terms, int64_t *up_left,
                          int64_t *down_left, int64_t now_us) noexcept
    # A connection that another process let in and hands over: whatever is limited here and
    # not in its usage yet is counted, and nothing is refused, but for want of a row.
    # `user` may have no Terms.
    cdef Entry adopt(self, Usage *usage, Terms terms, bytes user, bint is_tunnel, int family,
                     const uint8_t *data, int64_t now_us) noexcept
    # What it holds is from now on holder `number`'s on the same page, in the tally that is
    # returned; and the other way round, where that one would not have it, or is gone.
    cdef uint32_t lend(self, Usage *usage, int number) noexcept
    cdef void reclaim(self, Usage *usage, int number, uint32_t tally, bytes user,
                      int family, const uint8_t *data, int64_t now_us) noexcept
    cdef bint _claim(self, Holding *holding, int number, uint32_t tally, bytes user,
                     int family, const uint8_t *data, int64_t now_us) noexcept
    # The connection closes. Idempotent (R33).
    cdef void leave(self, Usage *usage, int64_t now_us) noexcept
