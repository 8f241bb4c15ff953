# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A page of memory that all workers share: rows with a number for each worker slot.

    header | of each slot: connections, tally | clients: chains, rows | users: chains, rows

Everything is read and written under one lock, a robust pthread mutex in the page. A row has
one number for each worker slot. Its sum is computed each time, because a sum that is not stored
cannot be wrong. So when a worker is killed, the supervisor clears the numbers of its slot
(`reap`), and all sums are exact again. A slot's tally counts how often its numbers were reset,
because counts that were lent to the slot before a reset are no longer in them.

If a worker is killed while it holds the lock, the next one to lock it gets EOWNERDEAD.
It then trusts the rows only, and rebuilds the chains and free lists from them. Rows never move
and are chained by number, because open addressing would have to move them, and half a move looks
like a row.

The page has no names, only their keyed hashes: 128 bits of SipHash with a key made for the page,
because a client must not choose names that collide, or that make one chain long.
"""

import mmap
import os

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset
from cutthrough.policy.mutex cimport (
    EOWNERDEAD, make_robust, ordered, pthread_mutex_consistent, pthread_mutex_lock,
    pthread_mutex_unlock)
from cutthrough.policy.siphash cimport keyed_hash

cdef enum:
    # Rows of each table: addresses with an open connection, and users. Untouched rows cost
    # address space only
    CAPACITY = 65536
    SWEEP_US = 1000000      # a full table is swept at most this often

# Without values, for their layouts: an offset from NULL is undefined behaviour
cdef Header layout
cdef Row row_layout

# With the layout that this program was compiled with (R90)
MAGIC = (0x6375747468726f02 ^ <uint64_t>sizeof(Header) << 8 ^ <uint64_t>sizeof(Row) << 24
         ^ <uint64_t>sizeof(Table) << 36 ^ <uint64_t>(<char *>&layout.lock - <char *>&layout) << 44
         ^ <uint64_t>(<char *>&row_layout.day - <char *>&row_layout) << 52)


cdef inline uint64_t aligned(uint64_t n) noexcept nogil:
    return (n + 63) // 64 * 64


def page_bytes(int slots, int capacity=CAPACITY):
    """Returns the length of a page for this many slots."""
    cdef uint64_t stride = aligned(sizeof(Row) + 4 * N_COLUMNS * slots)
    return (aligned(sizeof(Header)) + 2 * aligned(4 * slots)
            + 2 * (aligned(4 * capacity) + stride * capacity))


cdef class SharedTable:

    def __init__(self, memory=None, int slot=0):
        """A view of `memory`, a mapping that `create` has set up, for worker `slot`. Without
        `memory` the page is its own, for one worker."""
        cdef unsigned char[::1] view
        self.memory = create(1) if memory is None else memory
        view = self.memory
        self.page = <Header *>&view[0]
        if (<size_t>view.shape[0] < sizeof(Header) or self.page.magic != <uint64_t>MAGIC
                or <uint64_t>view.shape[0] < self.page.bytes):
            raise ValueError("the memory does not hold a shared table")
        if not 0 <= slot < <int>self.page.slots:
            raise ValueError(f"no slot {slot}: the page has {self.page.slots}")
        self.slot = slot
        self.all = <uint32_t *>(<char *>self.page + aligned(sizeof(Header)))
        self.tallies = <uint32_t *>(<char *>self.all + aligned(4 * self.page.slots))
        self._lock()
        self.page.seen = max(self.page.seen, <uint32_t>slot + 1)
        self._unlock()

    cdef void tag_of(self, const unsigned char *name, size_t n, uint64_t *tag) noexcept nogil:
        keyed_hash(self.page.key, name, n, tag)

    # --- rows --------------------------------------------------------------------------

    cdef Row *_row(self, Table *table, uint32_t number) noexcept nogil:
        return <Row *>(<char *>self.page + table.rows_at
                       + <uint64_t>number * self.page.stride)

    cdef uint32_t *_held(self, Row *row, int column) noexcept nogil:
        return <uint32_t *>(row + 1) + column * self.page.slots

    cdef uint64_t _sum(self, const uint32_t *columns) noexcept nogil:
        cdef uint64_t total = 0
        cdef uint32_t i
        for i in range(self.page.seen):
            total += columns[i]
        return total

    cdef bint _is_spent(self, Row *row, int64_t now_us) noexcept nogil:
        """Whether the row can be dropped: it has no counts, no debt and no used quota."""
        return (row.full_us <= now_us and self._sum(self._held(row, CONNECTIONS)) == 0
                and self._sum(self._held(row, TUNNELS)) == 0)

    cdef uint32_t *_bucket(self, Table *table, const uint64_t *tag) noexcept nogil:
        cdef uint32_t *buckets = <uint32_t *>(<char *>self.page + table.buckets_at)
        return buckets + (tag[0] & (table.capacity - 1))

    cdef uint32_t _find(self, Table *table, const uint64_t *tag) noexcept nogil:
        cdef uint32_t number = self._bucket(table, tag)[0]
        cdef Row *row
        while number:
            row = self._row(table, number)
            if row.tag[0] == tag[0] and row.tag[1] == tag[1]:
                return number
            number = row.next
        return 0

    cdef uint32_t _make(self, Table *table, const uint64_t *tag,
                        int64_t now_us) noexcept nogil:
        """Makes a row and returns its number; 0: the table is full, which is counted."""
        cdef uint32_t *bucket = self._bucket(table, tag)
        cdef uint32_t number
        cdef Row *row
        if table.free == 0 and table.fresh >= table.capacity:
            self._sweep(table, now_us)
        if table.free:
            number = table.free
            table.free = self._row(table, number).next
        elif table.fresh < table.capacity:
            number = table.fresh
            table.fresh += 1
        else:
            table.full += 1
            return 0
        row = self._row(table, number)
        memset(row, 0, self.page.stride)
        row.tag[0] = tag[0]
        row.tag[1] = tag[1]
        row.next = bucket[0]
        ordered()
        row.is_used = True                  # from here on a repair trusts it
        ordered()
        bucket[0] = number
        table.used += 1
        return number

    cdef void _drop(self, Table *table, uint32_t number) noexcept nogil:
        cdef Row *row = self._row(table, number)
        cdef uint32_t *link = self._bucket(table, row.tag)
        while link[0] != number:
            link = &self._row(table, link[0]).next
        link[0] = row.next
        ordered()
        row.is_used = False
        ordered()
        row.next = table.free
        table.free = number
        table.used -= 1

    cdef void _release(self, Table *table, uint32_t number, int column,
                       int64_t now_us) noexcept nogil:
        cdef Row *row = self._row(table, number)
        cdef uint32_t *held = self._held(row, column) + self.slot
        if held[0] == 0:
            self.page.underflows += 1
            return
        held[0] -= 1
        if self._is_spent(row, now_us):
            self._drop(table, number)

    cdef void _sweep(self, Table *table, int64_t now_us) noexcept nogil:
        """Drops the spent rows."""
        cdef uint32_t number
        cdef Row *row
        if now_us - table.swept_us < SWEEP_US:
            return
        table.swept_us = now_us
        for number in range(1, table.fresh):
            row = self._row(table, number)
            if row.is_used and self._is_spent(row, now_us):
                self._drop(table, number)

    # --- the lock ----------------------------------------------------------------------

    cdef void _lock(self) noexcept nogil:
        if pthread_mutex_lock(&self.page.lock) == EOWNERDEAD:
            self._repair(&self.page.clients)
            self._repair(&self.page.users)
            self.page.repairs += 1
            pthread_mutex_consistent(&self.page.lock)

    cdef void _unlock(self) noexcept nogil:
        pthread_mutex_unlock(&self.page.lock)

    cdef void _repair(self, Table *table) noexcept nogil:
        cdef uint32_t number
        cdef uint32_t *bucket
        cdef Row *row
        memset(<char *>self.page + table.buckets_at, 0, 4 * <size_t>table.capacity)
        table.free = table.used = 0
        for number in range(1, table.fresh):
            row = self._row(table, number)
            if row.is_used:
                bucket = self._bucket(table, row.tag)
                row.next = bucket[0]
                bucket[0] = number
                table.used += 1
            else:
                row.next = table.free
                table.free = number

    # --- for the supervisor and operators ------------------------------------------------

    def reap(self, uint32_t slot):
        """Gives back everything that the dead worker of this slot held."""
        if slot >= self.page.slots:
            raise ValueError(f"no slot {slot}: the page has {self.page.slots}")
        self._lock()
        self.tallies[slot] += 1
        self.all[slot] = 0
        self._clear(&self.page.clients, slot)
        self._clear(&self.page.users, slot)
        self._unlock()

    cdef void _clear(self, Table *table, uint32_t slot) noexcept nogil:
        cdef uint32_t number
        cdef Row *row
        for number in range(1, table.fresh):
            row = self._row(table, number)
            if row.is_used:
                self._held(row, CONNECTIONS)[slot] = 0
                self._held(row, TUNNELS)[slot] = 0
                if self._is_spent(row, 0):
                    self._drop(table, number)

    cdef uint64_t _count(self, Table *table, int slot) noexcept nogil:
        """Returns the sum of one slot's numbers in all rows; slot -1: of all slots."""
        cdef uint64_t total = 0
        cdef uint32_t number
        cdef int column
        cdef Row *row
        for number in range(1, table.fresh):
            row = self._row(table, number)
            if row.is_used:
                for column in range(<int>N_COLUMNS):
                    total += (self._sum(self._held(row, column)) if slot < 0
                              else self._held(row, column)[slot])
        return total

    def read(self):
        """Returns counts and counters by name, over all workers."""
        cdef uint64_t connections, of_clients, of_users
        self._lock()
        connections = self._sum(self.all)
        of_clients = self._count(&self.page.clients, -1)
        of_users = self._count(&self.page.users, -1)
        self._unlock()
        return {
            "connections": connections, "of_clients": of_clients, "of_users": of_users,
            "clients": self.page.clients.used, "users": self.page.users.used,
            "full": self.page.clients.full + self.page.users.full,
            "repairs": self.page.repairs, "underflows": self.page.underflows,
        }

    def held(self):
        """Returns the sum of all counts of this view's worker."""
        cdef uint64_t total
        self._lock()
        total = (self.all[self.slot] + self._count(&self.page.clients, self.slot)
                 + self._count(&self.page.users, self.slot))
        self._unlock()
        return total


def create(int slots, int fd=-1, int capacity=CAPACITY):
    """Sets up a page for this many slots and returns its mapping: of the file `fd`, which is
    resized to fit, or of anonymous memory."""
    cdef unsigned char[::1] view
    cdef Header *page
    cdef uint64_t at
    cdef bytes key = os.urandom(16)
    if not 0 < slots <= 4096 or capacity < 2 or capacity & (capacity - 1):
        raise ValueError("slots must be 1 to 4096, capacity a power of two")
    length = page_bytes(slots, capacity)
    if fd >= 0:
        os.ftruncate(fd, length)
    memory = mmap.mmap(fd, length)
    view = memory
    page = <Header *>&view[0]
    page.bytes = length
    page.slots = slots
    page.stride = <uint32_t>aligned(sizeof(Row) + 4 * N_COLUMNS * slots)
    memcpy(page.key, <char *>key, 16)
    at = aligned(sizeof(Header)) + 2 * aligned(4 * slots)
    at = lay_out(&page.clients, at, page.stride, capacity)
    lay_out(&page.users, at, page.stride, capacity)
    if not make_robust(&page.lock):
        raise OSError("this system has no robust mutexes")
    page.magic = <uint64_t>MAGIC
    return memory


cdef uint64_t lay_out(Table *table, uint64_t at, uint32_t stride, int capacity) noexcept:
    table.capacity = capacity
    table.fresh = 1
    table.buckets_at = at
    table.rows_at = at + aligned(4 * capacity)
    return table.rows_at + <uint64_t>stride * capacity
