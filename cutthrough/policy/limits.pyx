# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The limits of users, and the allowance of bytes of a relay.

What counts together is a user, a client or all, as the limits say. Limits apply by name, the
first of these: the limits that a rule names, the user's own, those of the first of the user's
groups that has limits, "default", none.

A rate is a token bucket. The user's bucket is on the shared page, one for all workers. It is drawn
from in quanta, because the lock is then taken some 30 times a second and not for each read. A
tunnel's own bucket is in the lane. A bucket holds an eighth of a second, because more would let a
burst through, and less would lose tokens to the timer wheel, which fires up to 64 ms late. A
quota is booked when a quantum has been used, at the end, and each second while the relay runs.
"""

from zlib import crc32

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from libc.time cimport time
from cutthrough.policy.ledger cimport ENTERED, NO_ROW, Draw, Entry, Grant, Holding, Ledger
from cutthrough.policy.source import Limits, PolicyError

cdef enum:
    # Bytes drawn at a time: a pump's turn is 1 MiB, and a quarter of it is four reads
    MOST_QUANTUM = 262144
    # For rates below 32 KiB/s: one segment each
    LEAST_QUANTUM = 1024
    # A prefix counts as one client, because an IPv6 host has a /64 of its own (RFC 6177, RFC 8981)
    PREFIX_BYTES = 8
    MOST_COUNT = 0x7fffffff     # larger counts are no limit in practice


cdef class Terms:

    def __init__(self, limits, name=None, bandwidth=0, most_bytes=0):
        """Made from a source.Limits, its table's name, and the bounds by faults."""
        cdef double slowest
        self.plain = limits
        self.name = name
        self.per_user = limits.per == "user"
        self.bandwidth = bandwidth
        self.most_bytes = most_bytes
        self.limits.table = 0 if name is None else crc32(name.encode()) or 1
        self.limits.connections = min(limits.connections, MOST_COUNT)
        self.limits.tunnels = min(limits.tunnels, MOST_COUNT)
        self.limits.requests_per_second = limits.requests_per_second
        self.limits.burst = max(limits.burst or limits.requests_per_second, 1)
        self.limits.bytes_per_second = limits.bytes_per_second
        self.limits.bytes_per_day = limits.bytes_per_day
        self.tunnel_rate = min([rate for rate in (limits.tunnel_bytes_per_second, bandwidth)
                                if rate], default=0)
        lanes = (limits.bytes_per_second_up, limits.bytes_per_second_down)
        slowest = min([rate for rate in (limits.bytes_per_second, self.tunnel_rate, *lanes)
                       if rate], default=INT64_MAX)
        self.quantum = <int64_t>min(max(slowest / 32, LEAST_QUANTUM), MOST_QUANTUM)
        self.limits.depth = max(self.limits.bytes_per_second / 8, 4 * self.quantum)
        for number, rate in enumerate(lanes):
            self.limits.lane_rate[<int>number] = rate
            self.limits.lane_depth[<int>number] = max(rate / 8, 4 * self.quantum)
        self.tunnel_depth = max(self.tunnel_rate / 8, 4 * self.quantum)
        self.has_bytes = any((limits.bytes_per_second, *lanes, limits.tunnel_bytes_per_second,
                              limits.bytes_per_day, bandwidth, most_bytes))

    cdef bytes subject(self, int family, const uint8_t *data):
        cdef uint8_t masked[16]
        cdef int bits, size
        if self.plain.per == "all":
            return b"\0" + (self.name or "").encode()
        bits = self.plain.ipv4_prefix if family == 4 else self.plain.ipv6_prefix
        size = (bits + 7) // 8
        memcpy(masked, data, size)
        if bits % 8:
            masked[size - 1] &= 0xff << (8 - bits % 8)
        return b"\0%d/%d " % (family, bits) + masked[:size]


cdef bint are_equal(Terms a, Terms b):
    if a is b or a is None or b is None:
        return a is b
    return (a.bandwidth == b.bandwidth and a.most_bytes == b.most_bytes
            and a.plain == b.plain and (a.plain.per != "all" or a.name == b.name))


cdef class Limiter:

    def __init__(self, Ledger ledger=None, policy=None, *, most=0, most_of_client=0):
        """`policy`: a source.Policy, or None. `most`, `most_of_client`: connections in all,
        and of one client address; 0: no limit."""
        self.ledger = Ledger() if ledger is None else ledger
        self.most = min(most, MOST_COUNT)
        self.most_of_client = min(most_of_client, MOST_COUNT)
        self.by_name = {}
        self.by_user = {}
        self.faulty = {}
        if policy is not None:
            self._compile(policy)
            self.default = self.by_name.get("default")

    def _compile(self, policy):
        self.by_name = {
            name: None if is_unlimited(limits) else Terms(limits, name)
            for name, limits in policy.limits.items()}
        chosen = {}
        for name, user in policy.users.items():
            for group in user.groups:
                if group in policy.group_limits:
                    chosen[name] = policy.group_limits[group]
                    break
        for group, members in policy.groups.items():
            for name in members:                # the user of the configuration is in no table
                if group in policy.group_limits and name not in policy.users:
                    chosen.setdefault(name, policy.group_limits[group])
        chosen.update(policy.user_limits)
        for name, limits in chosen.items():
            if limits not in self.by_name:
                raise PolicyError(policy.source, limits, f"no such limits, for user {name}")
            self.by_user[name.encode()] = self.by_name[limits]

    cdef Entry enter(self, Usage *usage, int family, const uint8_t *data) noexcept:
        cdef uint64_t tag[2]
        if self.most == 0 and self.most_of_client == 0:
            return ENTERED
        if self.most_of_client:
            self.ledger.tag_of(data, 4 if family == 4 else PREFIX_BYTES, tag)
        return self.ledger.enter(&usage.holding, self.most, tag, self.most_of_client)

    cdef Terms terms_of(self, bytes user, object limits):
        if limits is not None and limits in self.by_name:   # else from another generation
            return <Terms>self.by_name[limits]
        return <Terms>self.by_user.get(user, self.default)

    cdef Terms with_faults(self, Terms terms, int64_t bandwidth, int64_t most_bytes):
        if not (bandwidth or most_bytes):
            return terms
        key = (terms, bandwidth, most_bytes)
        if key not in self.faulty:
            self.faulty[key] = (Terms(Limits(), None, bandwidth, most_bytes) if terms is None
                                else Terms(terms.plain, terms.name, bandwidth, most_bytes))
        return <Terms>self.faulty[key]

    cdef Entry charge(self, Usage *usage, Terms terms, bytes user, bint is_tunnel,
                      int64_t now_us, uint32_t *retry_s) noexcept:
        cdef uint64_t tag[2]
        cdef Entry entry
        cdef const char *name = user
        if terms is None:
            self.ledger.leave_user(&usage.holding, now_us)
            return ENTERED
        self.ledger.tag_of(<const unsigned char *>name, len(user), tag)
        entry = self.ledger.charge(&usage.holding, tag, &terms.limits, is_tunnel, now_us,
                                   time(NULL), retry_s)
        if entry == ENTERED and not start_meter(usage, terms, now_us):
            self.ledger.end_tunnel(&usage.holding)
            return NO_ROW
        return entry

    cdef void uncharge(self, Usage *usage, Terms terms, int64_t *up_left, int64_t *down_left,
                       int64_t now_us) noexcept:
        self.end_request(usage, terms, up_left, down_left, now_us)
        self.ledger.uncharge(&usage.holding, &terms.limits, now_us)

    cdef bint refill(self, Usage *usage, Lane *lane, Terms terms, bint is_tunnel,
                     int64_t *left, int64_t now_us) noexcept:
        cdef int64_t used = lane.granted - left[0]
        cdef int64_t may = INT64_MAX
        cdef int64_t least = terms.quantum // 4     # fewer bytes are not worth a turn
        cdef double rate = terms.tunnel_rate if is_tunnel else terms.bandwidth
        cdef Draw draw
        cdef Grant grant
        lane.wait_us = 0
        if terms.limits.bytes_per_second > 0 or terms.limits.bytes_per_day or (
                terms.limits.lane_rate[lane.number] > 0):
            draw = Draw(used, lane.drawn - used, lane.granted_us, terms.quantum, lane.number)
            grant = self.ledger.draw(&usage.holding, &terms.limits, &draw, now_us, time(NULL))
            lane.drawn = may = grant.bytes
            if grant.left_today == 0:
                lane.granted = left[0] = 0
                return False
            if may < least and grant.wait_us:      # else the quota is the limit
                lane.wait_us = grant.wait_us
                may = 0
        if rate > 0:
            lane.tokens -= used
            if now_us > lane.tokens_us:
                lane.tokens += (now_us - lane.tokens_us) * rate / 1e6
                lane.tokens_us = now_us
            lane.tokens = min(lane.tokens, terms.tunnel_depth)
            if lane.tokens < least:
                lane.wait_us = max(lane.wait_us, <int64_t>(
                    (terms.quantum - lane.tokens) / rate * 1e6))
                may = 0
            may = min(may, <int64_t>lane.tokens)
        lane.granted = left[0] = max(0, may)
        lane.granted_us = now_us
        return True

    cdef void settle(self, Usage *usage, Terms terms, int64_t *up_left, int64_t *down_left,
                     int64_t now_us) noexcept:
        self._settle_lane(usage, &usage.meter.up, terms, up_left, now_us)
        self._settle_lane(usage, &usage.meter.down, terms, down_left, now_us)

    cdef void _settle_lane(self, Usage *usage, Lane *lane, Terms terms, int64_t *left,
                           int64_t now_us) noexcept:
        cdef int64_t used = lane.granted - left[0]
        cdef Draw draw
        if used or lane.drawn:
            draw = Draw(used, lane.drawn - used, lane.granted_us, 0, lane.number)
            self.ledger.draw(&usage.holding, &terms.limits, &draw, now_us, time(NULL))
        lane.granted = lane.drawn = left[0] = 0

    cdef void end_meter(self, Usage *usage, Terms terms, int64_t *up_left, int64_t *down_left,
                        int64_t now_us) noexcept:
        if usage.meter != NULL:
            self.settle(usage, terms, up_left, down_left, now_us)
            free(usage.meter)
            usage.meter = NULL

    cdef void end_request(self, Usage *usage, Terms terms, int64_t *up_left,
                          int64_t *down_left, int64_t now_us) noexcept:
        if terms is None:
            return
        if usage.meter != NULL:
            self.end_meter(usage, terms, up_left, down_left, now_us)
            up_left[0] = down_left[0] = INT64_MAX
        self.ledger.end_tunnel(&usage.holding)

    cdef Entry adopt(self, Usage *usage, Terms terms, bytes user, bint is_tunnel, int family,
                     const uint8_t *data, int64_t now_us) noexcept:
        cdef Holding more
        memset(&more, 0, sizeof(more))
        more.is_counted = self.most != 0 and not usage.holding.is_counted
        more.client_row = self.most_of_client != 0 and usage.holding.client_row == 0
        if terms is not None:
            more.user_row = usage.holding.user_row == 0
            more.has_tunnel = is_tunnel and more.user_row
        if not self._claim(&more, -1, 0, user, family, data, now_us):
            self.ledger.leave(&more, now_us)
            return NO_ROW
        usage.holding.is_counted |= more.is_counted
        usage.holding.has_tunnel |= more.has_tunnel
        usage.holding.client_row += more.client_row
        usage.holding.user_row += more.user_row
        if terms is not None and not start_meter(usage, terms, now_us):
            return NO_ROW
        return ENTERED

    cdef Entry change(self, Usage *usage, Terms terms, bytes user, bint is_tunnel, int family,
                      const uint8_t *data, int64_t now_us) noexcept:
        cdef uint64_t tag[2]
        cdef const char *name = user
        self.ledger.tag_of(<const unsigned char *>name, len(user), tag)
        if terms is None or not self.ledger.is_users(&usage.holding, tag):
            self.ledger.leave_user(&usage.holding, now_us)
        if terms is None:
            return ENTERED
        return self.adopt(usage, terms, user, is_tunnel, family, data, now_us)

    cdef uint32_t lend(self, Usage *usage, int number) noexcept:
        return self.ledger.lend(&usage.holding, number)

    cdef void reclaim(self, Usage *usage, int number, uint32_t tally, bytes user,
                      int family, const uint8_t *data, int64_t now_us) noexcept:
        self._claim(&usage.holding, number, tally, user, family, data, now_us)

    cdef bint _claim(self, Holding *holding, int number, uint32_t tally, bytes user,
                     int family, const uint8_t *data, int64_t now_us) noexcept:
        cdef uint64_t client_tag[2]
        cdef uint64_t user_tag[2]
        cdef const char *name = user
        self.ledger.tag_of(data, 4 if family == 4 else PREFIX_BYTES, client_tag)
        self.ledger.tag_of(<const unsigned char *>name, len(user), user_tag)
        return self.ledger.claim(holding, number, tally, client_tag, user_tag, now_us)

    cdef void leave(self, Usage *usage, int64_t now_us) noexcept:
        self.ledger.leave(&usage.holding, now_us)


cdef bint start_meter(Usage *usage, Terms terms, int64_t now_us) noexcept:
    """Makes the meter if there is a limit in bytes. False: out of memory."""
    if not terms.has_bytes:
        return True
    usage.meter = <Meter *>malloc(sizeof(Meter))
    if usage.meter == NULL:
        return False
    usage.meter.settled_us = now_us
    start_lane(&usage.meter.up, 0, terms, now_us)
    start_lane(&usage.meter.down, 1, terms, now_us)
    return True


cdef inline void start_lane(Lane *lane, int number, Terms terms, int64_t now_us) noexcept nogil:
    lane.number = number
    lane.is_awaited = False
    lane.granted = lane.drawn = lane.wait_us = lane.granted_us = 0
    lane.tokens = terms.tunnel_depth
    lane.tokens_us = now_us


cdef uint32_t seconds_left_today() noexcept nogil:
    return <uint32_t>(86400 - time(NULL) % 86400)


def is_unlimited(limits):
    return limits == Limits(per=limits.per, ipv4_prefix=limits.ipv4_prefix,
                            ipv6_prefix=limits.ipv6_prefix)
