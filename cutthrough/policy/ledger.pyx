# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Exact counts of everything that is limited, over all workers.

These are the operations on the page of `shared_table`; each takes and releases the lock once.
A connection's counts are in its Holding, because everything must be given back exactly once (R33),
and by the connection that took it.

The module reads no clock and knows no socket: the caller passes the time.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t, uint64_t
from cutthrough.policy.shared_table cimport (
    CONNECTIONS, TUNNELS, Bucket, Row, SharedTable, Table)

cdef enum:
    # All draws on a quota together take half of its remaining bytes, but one draw takes at
    # least this much. So each direction of a tunnel can exceed the quota by this.
    LAST_BYTES = 16384


cdef class Ledger(SharedTable):

    # --- connections and requests ----------------------------------------------------

    cdef Entry enter(self, Holding *holding, uint32_t most, const uint64_t *client,
                     uint32_t most_of_client) noexcept nogil:
        cdef Table *table = &self.page.clients
        cdef uint32_t *held
        cdef uint32_t number = 0
        cdef Entry answer = ENTERED
        self._lock()
        if most and self._sum(self.all) >= most:
            answer = OVER_ALL
        elif most_of_client:
            number = self._find(table, client)
            if number == 0:
                number = self._make(table, client, 0)
            if number == 0:
                answer = NO_ROW
            else:
                held = self._held(self._row(table, number), CONNECTIONS)
                if self._sum(held) >= most_of_client:
                    answer = OVER_CLIENT
                else:
                    held[self.slot] += 1
                    holding.client_row = number
        if answer == ENTERED and most:
            self.all[self.slot] += 1
            holding.is_counted = True
        self._unlock()
        return answer

    cdef Entry charge(self, Holding *holding, const uint64_t *user, const UserLimits *limits,
                      bint is_tunnel, int64_t now_us, int64_t now_s,
                      uint32_t *retry_s) noexcept nogil:
        cdef Table *table = &self.page.users
        cdef Row *row
        cdef uint32_t *held
        cdef uint32_t *tunnels
        cdef uint32_t number
        cdef Entry answer = ENTERED
        self._lock()
        number = holding.user_row
        if number:
            row = self._row(table, number)
            if row.tag[0] != user[0] or row.tag[1] != user[1]:
                self._leave_user(holding, now_us)   # another user's request (R23)
                number = 0
            elif limits.connections and not 0 < holding.most <= limits.connections:
                # Let in under a higher limit: what its latest request may not have is given back
                if self._sum(self._held(row, CONNECTIONS)) > limits.connections:
                    self._leave_user(holding, now_us)
                    self._unlock()
                    return OVER_CONNECTIONS
                holding.most = limits.connections
        if number == 0:
            number = self._find(table, user)
            if number == 0:
                number = self._make(table, user, now_us)
            if number == 0:
                self._unlock()
                return NO_ROW
            held = self._held(self._row(table, number), CONNECTIONS)
            if limits.connections and self._sum(held) >= limits.connections:
                self._unlock()
                return OVER_CONNECTIONS
            held[self.slot] += 1
            holding.user_row = number
            holding.most = limits.connections
        row = self._row(table, number)
        tunnels = self._held(row, TUNNELS)
        if limits.bytes_per_day and day_bytes_of(row, now_s) >= limits.bytes_per_day:
            answer = OVER_QUOTA
            retry_s[0] = <uint32_t>(DAY_S - now_s % DAY_S)
        elif is_tunnel and limits.tunnels and self._sum(tunnels) >= limits.tunnels:
            answer = OVER_TUNNELS
        elif limits.requests_per_second > 0 and not take_request(row, limits, now_us, retry_s):
            answer = OVER_RATE                      # checked last, because it takes a token
        elif is_tunnel:
            tunnels[self.slot] += 1
            holding.has_tunnel = True
        self._unlock()
        return answer

    cdef void uncharge(self, Holding *holding, const UserLimits *limits,
                       int64_t now_us) noexcept nogil:
        cdef Row *row
        if holding.user_row == 0:
            return
        self._lock()
        if limits.requests_per_second > 0:
            row = self._row(&self.page.users, holding.user_row)
            take_buckets(row, limits.table)
            row.requests += 1                       # tokens_of caps it at the burst
            row.spent -= 1
        self._leave_user(holding, now_us)
        self._unlock()

    cdef Entry charge_tunnel(self, Holding *holding, const UserLimits *limits) noexcept nogil:
        cdef uint32_t *tunnels
        cdef Entry answer = ENTERED
        if holding.user_row == 0 or holding.has_tunnel:
            return ENTERED
        self._lock()
        tunnels = self._held(self._row(&self.page.users, holding.user_row), TUNNELS)
        if limits.tunnels and self._sum(tunnels) >= limits.tunnels:
            answer = OVER_TUNNELS
        else:
            tunnels[self.slot] += 1
            holding.has_tunnel = True
        self._unlock()
        return answer

    cdef Grant draw(self, Holding *holding, const UserLimits *limits, const Draw *draw,
                    int64_t now_us, int64_t now_s) noexcept nogil:
        cdef int64_t want = draw.want
        cdef Grant grant
        cdef Row *row
        cdef Bucket *lane
        cdef int64_t lanes, before
        grant.bytes = want
        grant.left_today = INT64_MAX
        grant.wait_us = 0
        if holding.user_row == 0:
            return grant
        self._lock()
        row = self._row(&self.page.users, holding.user_row)
        if limits.bytes_per_day:
            row.day_bytes = day_bytes_of(row, now_s) + draw.used
            row.full_us = max(row.full_us, now_us + (DAY_S - now_s % DAY_S) * 1000000)
            grant.left_today = max(0, limits.bytes_per_day - row.day_bytes)
            lanes = 2 * max(1, <int64_t>self._sum(self._held(row, CONNECTIONS)))
            grant.bytes = min(want, max(grant.left_today // (2 * lanes), LAST_BYTES))
        want = grant.bytes
        take_buckets(row, limits.table)
        lane = &row.lanes[draw.lane]
        if limits.lane_rate[draw.lane] > 0:
            grant.bytes = most_of(lane, limits.lane_rate[draw.lane],
                                  limits.lane_depth[draw.lane], draw, grant.bytes, now_us)
        before = grant.bytes
        if limits.bytes_per_second > 0:
            grant.bytes = most_of(&row.bytes, limits.bytes_per_second, limits.depth, draw,
                                  grant.bytes, now_us)
            take(&row.bytes, limits.bytes_per_second, limits.depth, before, &grant, row, now_us)
        if limits.lane_rate[draw.lane] > 0:
            take(lane, limits.lane_rate[draw.lane], limits.lane_depth[draw.lane],
                 want if before < want else grant.bytes, &grant, row, now_us)
        self._unlock()
        return grant

    cdef void end_tunnel(self, Holding *holding) noexcept nogil:
        if holding.has_tunnel:
            holding.has_tunnel = False
            self._lock()
            self._release(&self.page.users, holding.user_row, TUNNELS, 0)
            self._unlock()

    cdef void leave(self, Holding *holding, int64_t now_us) noexcept nogil:
        if not holding.is_counted and holding.client_row == 0 and holding.user_row == 0:
            return
        self._lock()
        self._leave_user(holding, now_us)
        if holding.client_row:
            self._release(&self.page.clients, holding.client_row, CONNECTIONS, now_us)
            holding.client_row = 0
        if holding.is_counted:
            holding.is_counted = False
            if self.all[self.slot] == 0:
                self.page.underflows += 1
            else:
                self.all[self.slot] -= 1
        self._unlock()

    cdef void leave_user(self, Holding *holding, int64_t now_us) noexcept nogil:
        if holding.user_row:
            self._lock()
            self._leave_user(holding, now_us)
            self._unlock()

    cdef bint is_users(self, const Holding *holding, const uint64_t *user) noexcept nogil:
        cdef Row *row
        cdef bint answer
        if holding.user_row == 0:
            return True
        self._lock()
        row = self._row(&self.page.users, holding.user_row)
        answer = row.tag[0] == user[0] and row.tag[1] == user[1]
        self._unlock()
        return answer

    # --- a connection changes its worker -----------------------------------------------

    cdef uint32_t lend(self, const Holding *holding, int number) noexcept nogil:
        cdef Row *row
        cdef uint32_t tally
        if not holding.is_counted and holding.client_row == 0 and holding.user_row == 0:
            return self.tallies[number]
        self._lock()
        tally = self.tallies[number]
        if holding.is_counted:
            change_hands(self.all, self.slot, number)
        if holding.client_row:
            change_hands(self._held(self._row(&self.page.clients, holding.client_row),
                                    CONNECTIONS), self.slot, number)
        if holding.user_row:
            row = self._row(&self.page.users, holding.user_row)
            change_hands(self._held(row, CONNECTIONS), self.slot, number)
            if holding.has_tunnel:
                change_hands(self._held(row, TUNNELS), self.slot, number)
        self._unlock()
        return tally

    cdef uint32_t tally(self) noexcept nogil:
        return self.tallies[self.slot]      # others change it only after this worker's end

    cdef bint claim(self, Holding *holding, int number, uint32_t tally,
                    const uint64_t *client, const uint64_t *user,
                    int64_t now_us) noexcept nogil:
        cdef uint32_t row
        cdef bint done = True
        if not holding.is_counted and holding.client_row == 0 and holding.user_row == 0:
            return True
        self._lock()
        if number >= 0 and self.tallies[number] != tally:
            number = -1
        if holding.is_counted:
            change_hands(self.all, number, self.slot)
        if holding.client_row:
            row = self._find(&self.page.clients, client)
            if row == 0:
                row = self._make(&self.page.clients, client, now_us)
            holding.client_row = row
            if row:
                change_hands(self._held(self._row(&self.page.clients, row), CONNECTIONS),
                             number, self.slot)
            done = row != 0
        if holding.user_row:
            row = self._find(&self.page.users, user)
            if row == 0:
                row = self._make(&self.page.users, user, now_us)
            holding.user_row = row
            if row:
                change_hands(self._held(self._row(&self.page.users, row), CONNECTIONS),
                             number, self.slot)
            if row and holding.has_tunnel:
                change_hands(self._held(self._row(&self.page.users, row), TUNNELS),
                             number, self.slot)
            holding.has_tunnel &= row != 0
            done &= row != 0
        self._unlock()
        return done

    cdef void begin_recount(self) noexcept nogil:
        self._lock()
        self.tallies[self.slot] += 1
        self.all[self.slot] = 0
        self._zero(&self.page.clients)
        self._zero(&self.page.users)

    cdef void _zero(self, Table *table) noexcept nogil:
        cdef uint32_t number
        for number in range(1, table.fresh):
            self._held(self._row(table, number), CONNECTIONS)[self.slot] = 0
            self._held(self._row(table, number), TUNNELS)[self.slot] = 0

    cdef void add_recounted(self, const Holding *holding) noexcept nogil:
        cdef Row *row
        if holding.is_counted:
            self.all[self.slot] += 1
        if holding.client_row:
            self._held(self._row(&self.page.clients, holding.client_row),
                       CONNECTIONS)[self.slot] += 1
        if holding.user_row:
            row = self._row(&self.page.users, holding.user_row)
            self._held(row, CONNECTIONS)[self.slot] += 1
            self._held(row, TUNNELS)[self.slot] += holding.has_tunnel

    cdef void end_recount(self) noexcept nogil:
        self._drop_spent(&self.page.clients)
        self._drop_spent(&self.page.users)
        self._unlock()

    cdef void _drop_spent(self, Table *table) noexcept nogil:
        cdef uint32_t number
        for number in range(1, table.fresh):
            if self._row(table, number).is_used and self._is_spent(
                    self._row(table, number), 0):
                self._drop(table, number)

    cdef void _leave_user(self, Holding *holding, int64_t now_us) noexcept nogil:
        if holding.has_tunnel:
            holding.has_tunnel = False
            self._release(&self.page.users, holding.user_row, TUNNELS, 0)
        if holding.user_row:
            self._release(&self.page.users, holding.user_row, CONNECTIONS, now_us)
            holding.user_row = holding.most = 0


# How many of `want` bytes a bucket grants now, after what was not used of the last grant is back.
cdef inline int64_t most_of(Bucket *bucket, double rate, double depth, const Draw *draw,
                            int64_t want, int64_t now_us) noexcept nogil:
    bucket.tokens = tokens_of(bucket.tokens, &bucket.at_us, rate, depth, now_us)
    # If the bucket has been full since the grant, returned tokens would have run over: relays at
    # rest must not store up more than one bucket holds
    if draw.unused < 0 or draw.granted_us >= bucket.full_us:
        bucket.tokens += draw.unused
    if bucket.tokens >= depth:
        bucket.tokens = depth
        bucket.full_us = now_us
    return min(want, <int64_t>bucket.tokens if bucket.tokens > 0 else 0)


# Takes a grant from a bucket. If it is less than was wanted, it is until the next one.
cdef inline void take(Bucket *bucket, double rate, double depth, int64_t want, Grant *grant,
                      Row *row, int64_t now_us) noexcept nogil:
    bucket.tokens -= grant.bytes
    if grant.bytes < want:
        grant.wait_us = max(grant.wait_us, <int64_t>(
            (min(<double>want, depth / 4) - bucket.tokens) / rate * 1e6))
    row.full_us = max(row.full_us, now_us + <int64_t>((depth - bucket.tokens) / rate * 1e6))


cdef inline void change_hands(uint32_t *held, int giver, int taker) noexcept nogil:
    if giver >= 0 and held[giver] > 0:
        held[giver] -= 1
    held[taker] += 1


cdef inline bint take_request(Row *row, const UserLimits *limits, int64_t now_us,
                              uint32_t *retry_s) noexcept nogil:
    cdef double rate = limits.requests_per_second
    take_buckets(row, limits.table)
    row.requests = tokens_of(row.requests, &row.requests_us, rate, limits.burst, now_us)
    if row.requests < 1:
        retry_s[0] = <uint32_t>min((1 - row.requests) / rate + 1, <double>DAY_S)
        return False
    row.requests -= 1
    row.spent += 1
    row.rate = rate
    row.burst = limits.burst
    row.full_us = max(row.full_us,
                      now_us + <int64_t>((limits.burst - row.requests) / rate * 1e6))
    return True
