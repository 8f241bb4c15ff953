# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The usage of users in the other programs of a fleet, booked on the shared page.

`collect` returns changes in this program's own usage, `book` takes in the usage of all other
programs. The workers need not know: connections and tunnels held elsewhere are in the rows as
those of one more holder, bytes of the day are added to the row's, and tokens spent elsewhere
are taken from its bucket, because a limit must cost no more to check than without a fleet, and no
check may wait.

The last report is kept for each row, with its user. If the row has been dropped and belongs
to another user now, zero usage is reported for the first one.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset
from cutthrough.policy.ledger cimport DAY_S, day_bytes_of, tokens_of
from cutthrough.policy.shared_table cimport CONNECTIONS, TUNNELS, Row, SharedTable, Table

cdef enum:
    # Rows that are read while the lock is held once, some 20 µs
    SLICE = 512

# The last report of a row: what its user used in this program.
cdef struct Report:
    uint64_t tag[2]
    uint32_t round          # of the report; 0: none yet
    uint32_t connections
    uint32_t tunnels
    int64_t day             # days of the epoch, UTC
    int64_t bytes           # moved on that day
    int64_t spent           # tokens of requests


cdef class RemoteUsage(SharedTable):
    cdef Report *reported   # by the row's number
    cdef Report *reports    # reports of one call of `collect`
    cdef uint32_t round     # reports of an earlier round are repeated
    cdef uint32_t base      # number of the baseline from which tokens of others are deducted

    def __init__(self, memory=None, int slot=0):
        SharedTable.__init__(self, memory, slot)
        if self.reported == NULL:
            self.reported = <Report *>calloc(self.page.users.capacity, sizeof(Report))
            self.reports = <Report *>calloc(2 * SLICE, sizeof(Report))
        if self.reported == NULL or self.reports == NULL:
            raise MemoryError
        self.round = self.base = 1

    def __dealloc__(self):
        free(self.reported)
        free(self.reports)

    def restart(self):
        """Makes `collect` report every user again. Tokens that others have spent until now are
        not deducted."""
        self.round += 1
        self.base += 1

    def tag(self, bytes name):
        """Returns the tag of a user on this page: the keyed hash of the name."""
        cdef uint64_t tag[2]
        self.tag_of(name, len(name), tag)
        return (<char *>tag)[:16]

    def collect(self, uint32_t begin, int64_t now_s):
        """Reads up to SLICE rows from row `begin`. Returns the row to continue with, 0 at the
        end, and the reports: (tag, connections, tunnels, bytes of the day, tokens spent)."""
        cdef Table *table = &self.page.users
        cdef Report *reports = self.reports
        cdef uint32_t n = 0
        cdef uint32_t number, end
        self._lock()
        begin = max(begin, 1)
        end = min(begin + SLICE, table.fresh)
        for number in range(begin, end):
            n += self._report(table, number, now_s // DAY_S, reports + n)
        if end == table.fresh:
            end = 0
        self._unlock()
        return end, [((<char *>reports[number].tag)[:16], reports[number].connections,
                      reports[number].tunnels, reports[number].bytes, reports[number].spent)
                     for number in range(n)]

    cdef uint32_t _report(self, Table *table, uint32_t number, int64_t today,
                          Report *out) noexcept nogil:
        """Writes the reports that one row makes due. Returns their number, at most 2."""
        cdef Report *last = self.reported + number
        cdef Row *row = self._row(table, number)
        cdef Report now
        cdef uint32_t other
        cdef uint32_t n = 0
        while last.round and not is_of(last, row):      # the row's former user was dropped
            other = self._find(table, last.tag)
            if other:                                   # and is back in another row
                now = self.reported[other]
                self.reported[other] = last[0]
                last[0] = now
                continue
            if not is_empty(last):
                memset(out, 0, sizeof(Report))
                out.tag[0] = last.tag[0]
                out.tag[1] = last.tag[1]
                n += 1
            last.round = 0
        if not row.is_used:
            return n
        now.tag[0] = row.tag[0]
        now.tag[1] = row.tag[1]
        now.round = self.round
        now.day = today
        now.connections = self._held_here(row, CONNECTIONS)
        now.tunnels = self._held_here(row, TUNNELS)
        now.spent = row.spent
        now.bytes = 0
        if row.day == today:
            now.bytes = row.day_bytes - row.remote_bytes
        if last.round == self.round and is_unchanged(last, &now):
            return n
        if last.round == 0 and is_empty(&now) and not self._is_held_elsewhere(row):
            return n                            # an unused new row needs no report
        last[0] = now
        out[n] = now
        return n + 1

    cdef uint32_t _held_here(self, Row *row, int column) noexcept nogil:
        cdef uint32_t *held = self._held(row, column)
        return <uint32_t>(self._sum(held) - held[self.slot])

    cdef bint _is_held_elsewhere(self, Row *row) noexcept nogil:
        return (self._held(row, CONNECTIONS)[self.slot] != 0
                or self._held(row, TUNNELS)[self.slot] != 0)

    def book(self, bytes tag, uint32_t connections, uint32_t tunnels, int64_t day_bytes,
             int64_t spent, int64_t now_us, int64_t now_s):
        """Books the usage of a user in all other programs together: connections and tunnels
        now, bytes of today, tokens spent in total. A user who is new here gets a row as long
        as half of all rows are free."""
        cdef Table *table = &self.page.users
        cdef uint64_t *name = <uint64_t *><char *>tag
        cdef uint32_t number
        cdef Row *row
        if len(tag) != 16:
            raise ValueError("a tag has 16 bytes")
        self._lock()
        number = self._find(table, name)
        if number == 0 and (connections or tunnels or day_bytes) and (
                table.used < table.capacity // 2):
            number = self._make(table, name, now_us)
            if number and self.reported[number].round == 0:     # an unused row needs no report
                memset(self.reported + number, 0, sizeof(Report))
                self.reported[number].tag[0] = name[0]
                self.reported[number].tag[1] = name[1]
                self.reported[number].round = self.round
        if number:
            row = self._row(table, number)
            self._held(row, CONNECTIONS)[self.slot] = connections
            self._held(row, TUNNELS)[self.slot] = tunnels
            if day_bytes:
                add_bytes(row, day_bytes, now_us, now_s)
            take_tokens(row, spent, self.base, now_us)
            if self._is_spent(row, now_us):
                self._drop(table, number)
        self._unlock()

    def forget(self):
        """Removes all connections and tunnels held elsewhere; the bytes of today stay used."""
        self.reap(self.slot)


cdef inline bint is_of(const Report *report, const Row *row) noexcept nogil:
    return row.is_used and report.tag[0] == row.tag[0] and report.tag[1] == row.tag[1]


cdef inline bint is_unchanged(const Report *last, const Report *now) noexcept nogil:
    return (last.connections == now.connections and last.tunnels == now.tunnels
            and last.spent == now.spent and last.bytes == now.bytes
            and (last.day == now.day or is_empty(now)))


cdef inline bint is_empty(const Report *report) noexcept nogil:
    return not (report.connections or report.tunnels or report.bytes or report.spent)


cdef void add_bytes(Row *row, int64_t day_bytes, int64_t now_us, int64_t now_s) noexcept nogil:
    """Used bytes stay used, even if a Redis that lost its data reports fewer."""
    cdef int64_t moved = day_bytes_of(row, now_s)
    row.day_bytes = moved + max(0, day_bytes - row.remote_bytes)
    row.remote_bytes = max(row.remote_bytes, day_bytes)
    row.full_us = max(row.full_us, now_us + (DAY_S - now_s % DAY_S) * 1000000)


cdef void take_tokens(Row *row, int64_t spent, uint32_t base, int64_t now_us) noexcept nogil:
    """Takes tokens spent elsewhere since the last exchange; older ones are not deducted. If a user
    has no request here, it is skipped, because the bucket is full, and its depth is unknown."""
    cdef int64_t more = spent - row.remote_spent
    if row.remote_base == base and more > 0 and row.requests_us:
        row.requests = tokens_of(row.requests, &row.requests_us, row.rate, row.burst,
                                 now_us) - more
        row.full_us = max(row.full_us, now_us + <int64_t>(
            (row.burst - row.requests) / row.rate * 1e6))
    row.remote_spent = spent
    row.remote_base = base
