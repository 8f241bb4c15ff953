# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A ring of records in shared memory: captured exchanges, on their way to the writer.

    worker  ── fills a record, then moves `head` ──>  ring  ──>  reads, writes to the store,
                                                                 then moves `tail`  ── writer

The producer never waits (R58): a record without room is dropped and counted by the caller. A
record becomes visible as a whole, when `head` moves behind it, so a producer that is killed in
the middle leaves nothing behind, and its replacement continues behind the last record. The consumer
moves `tail` when it has stored the records, and has erased them: the next consumer reads again
what this one had not stored. Records of an exchange that has no end yet stay, unless an eighth of
the ring was read behind them.

A consumer that dies has perhaps died of an exchange. Its successor reads each exchange of that turn
alone; one at which two of them have died is_deadly, and is to be left out (R71).

A record of an exchange that must not be lost waits in the worker's own memory, if there is no
room; and behind it all records of such exchanges, so that their order stays.

The consumer is woken by a byte through a pipe, but only after it has announced that it sleeps:
under load no system call is made here.
"""

import secrets

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from cutthrough.tape.gathered cimport Gathered
from cutthrough.tape.record cimport (
    END, HEADS, PADDING, Kind, Record, is_framed)

cdef extern from "<unistd.h>" nogil:
    ssize_t write(int fd, const void *data, size_t n)

cdef extern from "<string.h>" nogil:
    void explicit_bzero(void *at, size_t n)

cdef extern from * nogil:
    """
    #define load_position(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)
    #define store_position(p, v) __atomic_store_n((p), (v), __ATOMIC_RELEASE)
    #define take_flag(p) __atomic_exchange_n((p), 0, __ATOMIC_SEQ_CST)
    #define put_flag(p) __atomic_store_n((p), 1, __ATOMIC_SEQ_CST)
    #define full_fence() __atomic_thread_fence(__ATOMIC_SEQ_CST)
    #define keep_order() __atomic_signal_fence(__ATOMIC_SEQ_CST)
    """
    uint64_t load_position(const uint64_t *p)
    void store_position(uint64_t *p, uint64_t value)
    uint64_t take_flag(uint64_t *p)
    void put_flag(uint64_t *p)
    void full_fence()
    void keep_order()           # for the compiler alone

cdef enum:
    # mmap(2) takes offsets in whole pages, and a page of arm64 may have 64 KiB
    HEADER_BYTES = 65536
    # Of a record that waits: any ring has room for it, wherever its head stands
    MOST_HELD_RECORD = LEAST_BYTES // 4
    # Records of an exchange without an END stay in so great a part of the ring
    KEPT_PART = 8
    # Bytes of a record before its field `worker`: size and kind, all that padding has
    WORKER_AT = 6

RING_BYTES = HEADER_BYTES + DATA_BYTES

assert sizeof(Record) == 24 and sizeof(Header) <= HEADER_BYTES


cdef char *reserve(Producer *ring, size_t n) noexcept nogil:
    cdef Header *header = ring.header
    cdef uint64_t head = header.head
    cdef uint64_t spare = ring.size - (head - load_position(&header.tail))
    cdef uint64_t at = head & (ring.size - 1)
    cdef uint64_t left = ring.size - at         # to the end of the ring
    cdef uint64_t size = (sizeof(Record) + n + 7) & ~<uint64_t>7
    cdef Record *record = <Record *>(ring.data + at)
    if size <= left:
        if size > spare:
            return NULL
        record.size = <uint32_t>size
        return <char *>(record + 1)
    if size > ring.size or left + size > spare:
        return NULL
    record.size = <uint32_t>left
    record.kind = PADDING
    record = <Record *>ring.data
    record.size = <uint32_t>size
    return <char *>(record + 1)


cdef void publish(Producer *ring, Kind kind, uint16_t worker, uint64_t request,
                  size_t n) noexcept nogil:
    cdef Header *header = ring.header
    cdef uint64_t head = header.head
    cdef uint64_t size = (sizeof(Record) + n + 7) & ~<uint64_t>7
    cdef uint64_t left = ring.size - (head & (ring.size - 1))
    cdef Record *record = <Record *>(ring.data + (head & (ring.size - 1)))
    if ring.filling != NULL:
        hold(ring, kind, worker, request, n)
        return
    if size > left:
        head += left                            # behind the padding
        record = <Record *>ring.data
    record.size = <uint32_t>size
    record.kind = <uint16_t>kind
    record.worker = worker
    record.request = request
    record.length = n
    store_position(&header.head, head + size)
    if kind == HEADS:                           # worth no wake-up before its END
        return
    full_fence()                                # `head` is visible before `sleeps` is read
    if load_position(&header.sleeps) and head + size >= header.sleeps_to and (
            take_flag(&header.sleeps)) and ring.wake_fd >= 0:
        write(ring.wake_fd, b"w", 1)            # if the pipe is full, it is awake


cdef char *reserve_or_hold(Producer *ring, size_t n) noexcept nogil:
    cdef Held *record
    cdef char *at
    if ring.first != NULL:
        settle(ring)
    if ring.first == NULL:
        at = reserve(ring, n)
        if at != NULL:
            return at
    if ring.held + sizeof(Held) + n > ring.most_held or n > MOST_HELD_RECORD:
        return NULL
    record = <Held *>malloc(sizeof(Held) + n)
    if record == NULL:
        return NULL
    record.room = n
    ring.filling = record
    return <char *>(record + 1)


cdef void hold(Producer *ring, Kind kind, uint16_t worker, uint64_t request,
               size_t n) noexcept nogil:
    cdef Held *record = ring.filling
    ring.filling = record.next = NULL
    record.kind = <uint16_t>kind
    record.worker = worker
    record.request = request
    record.length = n
    if ring.first == NULL:
        ring.first = record
    else:
        ring.last.next = record
    ring.last = record
    ring.held += sizeof(Held) + record.room


cdef void settle(Producer *ring) noexcept nogil:
    cdef Held *record
    cdef char *at
    while ring.first != NULL:
        record = ring.first
        at = reserve(ring, record.length)
        if at == NULL:
            return
        memcpy(at, record + 1, record.length)
        publish(ring, <Kind>record.kind, record.worker, record.request, record.length)
        drop_first(ring)


cdef void drop_first(Producer *ring) noexcept nogil:
    cdef Held *record = ring.first
    ring.first = record.next
    ring.held -= sizeof(Held) + record.room
    explicit_bzero(record + 1, record.room)     # it may have secrets
    free(record)


cdef uint64_t in_flight(const Producer *ring) noexcept nogil:
    return ring.header.head - load_position(&ring.header.tail) + ring.held


cdef class Ring:

    def __dealloc__(self):
        while self.producer.first != NULL:
            drop_first(&self.producer)
        free(self.producer.filling)

    def __init__(self, memory, int wake_fd=-1, uint64_t size=0):
        """Makes a ring on writable `memory` of RING_BYTES bytes; zeroed memory is an empty ring.
        `wake_fd`: the producer's end of the consumer's pipe, not owned. `size`: of an empty ring, the
        bytes that it has for records, in place of the most (see ring_room)."""
        cdef unsigned char[::1] view = memory
        if view.shape[0] < RING_BYTES:
            raise ValueError("a ring has %d bytes" % RING_BYTES)
        self.memory = memory
        self.producer.header = <Header *>&view[0]
        self.producer.data = <char *>&view[HEADER_BYTES]
        self.producer.wake_fd = wake_fd
        if size and not self.producer.header.size:
            self.producer.header.size = size
        self.producer.size = size_of(self.producer.header)
        self.read_to = self.producer.header.tail
        if self.read_to < self.producer.header.turn <= self.producer.header.head:
            self.again = self.producer.header.turn

    def counts(self):
        """Numbers of exchanges by result, since the ring was made."""
        cdef Header *header = self.producer.header
        return {"captured": header.exchanges, "dropped": header.dropped,
                "partial": header.parts + header.forgotten, "unwritten": header.unwritten,
                "failed": header.failed}

    def hold(self, size_t most):
        """Records that must not be lost wait in memory for room: at most as many bytes."""
        self.producer.most_held = most

    def settle(self):
        """Moves records that wait into the ring. False: some have no room yet."""
        settle(&self.producer)
        return self.producer.first == NULL

    @property
    def size(self):
        """The bytes that it has for records."""
        return self.producer.size

    @property
    def in_use(self):
        """Bytes that the producer has filled and the consumer has not released."""
        return load_position(&self.producer.header.head) - self.producer.header.tail

    @property
    def unread(self):
        """Bytes that the consumer has not read."""
        return load_position(&self.producer.header.head) - self.read_to

    def read(self, Py_ssize_t most, bint wholes=False):
        """Returns (kind, worker, request, payload) of the next records, some `most` bytes of
        them; []: there are none. `wholes`: a Whole in place of the records of an exchange, if all are
        among these bytes, and are MOST_OF_WHOLE at most. `release` gives their room back.
        After a consumer that was killed, these are first the records of its last turn that are
        still there; if it was killed before their `release`, up to the end of one exchange. A
        record that cannot be one ends the reading: the ring is taken as empty."""
        cdef Header *header = self.producer.header
        cdef uint64_t head = load_position(&header.head)
        cdef uint64_t size = size_of(header)    # its worker may be new
        cdef uint64_t at = self.read_to
        cdef uint64_t end = self.again or min(head, at + <uint64_t>most)
        cdef const Record *record
        cdef list records = []
        cdef bint is_alone = self.begin()
        self.producer.size = size
        while at < end:
            record = <const Record *>(self.producer.data + (at & (size - 1)))
            if not is_framed(record, min(head - at, size - (at & (size - 1)))):
                at = head
                break
            at += record.size
            if record.kind == PADDING:
                continue
            if record.length > record.size - sizeof(Record):
                at = head
                break
            if not wholes or not self.gathered.gather(record, records):
                self.gathered.put_apart(record, records)
            if record.kind == END and is_alone:
                break
        records[:0] = self.gathered.end()       # what has ended stays the last
        self.read_to = at
        self.producer.header.turn = max(at, self.again)
        self.is_again = self.again != 0
        if at >= self.again:
            self.again = 0
        if self.is_again and not records:       # all of them are erased
            return self.read(most, wholes)
        header.in_hand = (at | is_alone) if records else 0
        self.reads_alone = at < self.alone_to
        self.is_deadly = is_alone and header.in_hand == header.suspect and header.deaths >= 2
        return records

    cdef bint begin(self) except -1:
        """Notes where the consumer before has died. Returns whether exchanges are read alone."""
        cdef Header *header = self.producer.header
        if self.gathered is None:
            self.gathered = Gathered(self.memory)
        self.gathered.begin()
        if header.in_hand and not self.has_begun:
            header.deaths = header.deaths + 1 if header.suspect == header.in_hand else 1
            header.suspect = header.in_hand
            self.alone_to = max(self.again, header.in_hand & ~<uint64_t>7)
        self.has_begun = True
        return self.read_to < self.alone_to

    def leave(self):
        """Leaves the read, unreleased part to the next consumer: it is not suspect."""
        self.producer.header.in_hand = 0

    @property
    def turn(self):
        """The end of the last read: bytes since the ring was made."""
        return self.read_to

    @property
    def name(self):
        """The name of this ring, until it is unmapped everywhere."""
        if not self.producer.header.name:
            self.producer.header.name = secrets.randbits(62) + 1
        return self.producer.header.name

    def release(self):
        """Erases the records that were read, and gives their room back: a secret is in this
        memory only until its exchange is stored. Records of exchanges without an END stay, for the
        next consumer. An erased record is padding, so a consumer that is killed here leaves
        nothing that its successor would misread."""
        cdef uint64_t at = self.producer.header.tail, tail = at, size = self.producer.size
        cdef Record *record
        while at < self.read_to:
            record = <Record *>(self.producer.data + (at & (size - 1)))
            if not is_framed(record, min(self.read_to - at, size - (at & (size - 1)))):
                tail = self.read_to             # not a record: read() has skipped the rest
                break
            if record.kind != PADDING and self.is_done_with(record, at):
                record.kind = PADDING
                keep_order()                    # a kill may come between the two
                memset(&record.worker, 0, record.size - WORKER_AT)
            if tail == at and record.kind == PADDING:
                tail += record.size
            at += record.size
        store_position(&self.producer.header.tail, tail)
        self.producer.header.in_hand = 0

    cdef bint is_done_with(self, const Record *record, uint64_t at) except -1:
        if self.gathered.is_open(record):
            if self.read_to - at <= self.producer.size // KEPT_PART:
                return False
            self.gathered.set_open(record, False)        # its other records are of no use alone
        return True

    def sleep(self, uint64_t n=1):
        """Announces that the consumer waits to be woken, when there are `n` bytes that it has not
        read. False: they are there."""
        self.producer.header.sleeps_to = self.read_to + n
        put_flag(&self.producer.header.sleeps)
        full_fence()
        return load_position(&self.producer.header.head) < self.read_to + n

    def wake(self):
        """The consumer is awake: no byte needs to be sent."""
        take_flag(&self.producer.header.sleeps)

    def set_failing(self, bint fails):
        """Whether the consumer can write recordings."""
        self.producer.header.fails = fails

    def lose(self, uint64_t unwritten=0, uint64_t failed=0, uint64_t forgotten=0):
        """Counts the consumer's losses."""
        self.producer.header.unwritten += unwritten
        self.producer.header.failed += failed
        self.producer.header.forgotten += forgotten

    def trace(self, uint64_t exported=0, uint64_t lost=0):
        """Counts exchanges whose spans were exported or lost; returns both sums."""
        self.producer.header.exported += exported
        self.producer.header.untraced += lost
        return self.producer.header.exported, self.producer.header.untraced

    @property
    def pending(self):
        """Exchanges that were released, and wait in the consumer's memory or were lost with it."""
        return self.producer.header.pending

    @pending.setter
    def pending(self, uint64_t count):
        self.producer.header.pending = count

    def hand(self):
        """The consumer takes the records that were read last into its memory, and counts them as
        pending. False: a consumer that was killed has had them in its memory."""
        if self.read_to <= self.producer.header.handed:
            return False
        self.producer.header.handed = self.read_to
        return True

    def beat(self, uint64_t turns=1):
        """Adds turns of the consumer's loop, which does not hang; returns their number."""
        self.producer.header.beats += turns
        return self.producer.header.beats

    def count_left(self):
        """How many exchanges have their ends in the ring, and were not released."""
        cdef Header *header = self.producer.header
        cdef uint64_t at = header.tail, left = header.head - at, size = size_of(header)
        cdef const Record *record
        cdef Py_ssize_t count = 0
        while left:
            record = <const Record *>(self.producer.data + (at & (size - 1)))
            if not is_framed(record, min(left, size - (at & (size - 1)))):
                break
            count += record.kind == END
            at += record.size
            left -= record.size
        return count
