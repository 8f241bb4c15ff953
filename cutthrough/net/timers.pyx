# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Deadlines: a hashed wheel of one level, with lazy re-arming.

A move to a later time only stores the new time, because every state of a connection has a
deadline, and nearly every event moves one; the timer stays in its slot, and is filed
again when the wheel reaches that slot. Precision is one tick: a deadline expires 0 to 32 ms
late, never early.

The wheel has no clock and no fd: the caller passes the time.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef extern from *:
    int __builtin_ctzll(unsigned long long x) noexcept nogil


cdef class Wheel:

    def __cinit__(self):
        cdef int i
        for i in range(N_SLOTS):
            self.slots[i].prev = &self.slots[i]
            self.slots[i].next = &self.slots[i]

    cdef void arm(self, Timer *timer, int64_t deadline_ms) noexcept:
        timer.deadline_ms = deadline_ms
        if timer.filed_tick:
            if deadline_ms >= <int64_t>timer.filed_tick * TICK_MS:
                return                      # its slot comes in time; filed again then
            self._unfile(timer)
        else:
            self.armed += 1
        self._file(timer)

    cdef void disarm(self, Timer *timer) noexcept:
        if timer.filed_tick:
            self._unfile(timer)
            self.armed -= 1

    cdef void advance(self, int64_t now_ms) noexcept:
        cdef int64_t last = now_ms // TICK_MS
        self.now_ms = now_ms
        if self.armed == 0 or last - self.tick > N_SLOTS:
            self.tick = max(self.tick, last - N_SLOTS)
        self.turn = MOST_EXPIRED
        while self.tick < last:
            self.tick += 1
            self._pass(<int>(self.tick % N_SLOTS))
            if self.turn == 0:              # the rest of this slot expires next time
                self.tick -= 1
                return

    cdef void _pass(self, int slot) noexcept:
        # The head is read again each time, because an expiry may disarm or arm any other timer.
        # Timers armed meanwhile land in a later slot, because deadlines round up.
        cdef Timer *head = &self.slots[slot]
        cdef Timer *timer
        while head.next != head and self.turn:
            timer = head.next
            self._unfile(timer)
            if timer.deadline_ms > self.now_ms:
                self._file(timer)
            else:
                self.armed -= 1
                self.turn -= 1
                self.on_expiry(timer)

    cdef int64_t next_in_ms(self, int64_t now_ms) noexcept:
        cdef int64_t start = self.tick + 1
        cdef int64_t i
        cdef int word, bit
        cdef uint64_t bits
        if self.armed == 0:
            return -1
        if self.next_tick > self.tick:
            return max(0, self.next_tick * TICK_MS - now_ms)
        i = start
        while i < start + N_SLOTS + 64:
            word = <int>((i % N_SLOTS) // 64)
            bit = <int>(i % 64)
            bits = self.occupied[word] >> bit
            if bits:
                i += __builtin_ctzll(bits)
                self.next_tick = i
                return max(0, i * TICK_MS - now_ms)
            i += 64 - bit
        return -1

    cdef void _file(self, Timer *timer) noexcept:
        cdef int64_t tick = (timer.deadline_ms + TICK_MS - 1) // TICK_MS
        cdef Timer *head
        if tick <= self.tick:
            tick = self.tick + 1
        elif tick > self.tick + N_SLOTS - 1:
            tick = self.tick + N_SLOTS - 1
        timer.filed_tick = <uint32_t>tick    # they last for 4 years
        head = &self.slots[tick % N_SLOTS]
        timer.prev = head.prev
        timer.next = head
        head.prev.next = timer
        head.prev = timer
        self.occupied[(tick % N_SLOTS) // 64] |= <uint64_t>1 << (tick % 64)
        if tick < self.next_tick or self.armed == 1:
            self.next_tick = tick

    cdef void _unfile(self, Timer *timer) noexcept:
        cdef Timer *head = timer.next
        timer.prev.next = timer.next
        timer.next.prev = timer.prev
        if head.next == head:               # the slot is empty now
            self.occupied[(timer.filed_tick % N_SLOTS) // 64] &= ~(
                <uint64_t>1 << (timer.filed_tick % 64))
            if timer.filed_tick == self.next_tick:
                self.next_tick = 0
        timer.filed_tick = 0
