# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A ring of records in shared memory: captured exchanges, on their way to the writer.

    worker  ── fills a record, then moves `head` ──>  ring  ──>  reads, writes to the store,
                                                                 then moves `tail`  ── writer

The producer never waits (R58): a record without room is dropped and counted by the caller. A
record becomes visible as a whole, when `head` moves behind it, so a producer that is killed in
the middle leaves nothing behind, and its replacement continues behind the last record. The consumer
moves `tail` when it has stored the records, and has erased them: the next consumer reads again
what this one had not stored. Records of an exchange that has no end yet stay, as far as
KEPT_BYTES behind the last that was read.

A record of an exchange that must not be lost waits in the worker's own memory, if there is no
room; and behind it all records of such exchanges, so that their order stays.

The consumer is woken by a byte through a pipe, but only after it has announced that it sleeps:
under load no system call is made here.
"""

import secrets

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

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
    # Bytes of records: some 5000 exchanges, or 0.1 s of bodies at 80 MB/s
    DATA_BYTES = 8388608
    # mmap(2) takes offsets in whole pages, and a page of arm64 may have 64 KiB
    HEADER_BYTES = 65536
    # Of a record that waits: the ring has room for it, wherever its head stands
    MOST_HELD_RECORD = DATA_BYTES // 4
    KEPT_BYTES = DATA_BYTES // 8
    # Bytes of a record before its field `worker`: size and kind, all that padding has
    WORKER_AT = 6

RING_BYTES = HEADER_BYTES + DATA_BYTES

assert sizeof(Record) == 24 and sizeof(Header) <= HEADER_BYTES


cdef char *reserve(Producer *ring, size_t n) noexcept nogil:
    cdef Header *header = ring.header
    cdef uint64_t head = header.head
    cdef uint64_t spare = DATA_BYTES - (head - load_position(&header.tail))
    cdef uint64_t at = head % DATA_BYTES
    cdef uint64_t left = DATA_BYTES - at        # to the end of the ring
    cdef uint64_t size = (sizeof(Record) + n + 7) & ~<uint64_t>7
    cdef Record *record = <Record *>(ring.data + at)
    if size <= left:
        if size > spare:
            return NULL
        record.size = <uint32_t>size
        return <char *>(record + 1)
    if size > DATA_BYTES or left + size > spare:
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
    cdef uint64_t left = DATA_BYTES - head % DATA_BYTES
    cdef Record *record = <Record *>(ring.data + head % DATA_BYTES)
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
    if header.sleeps and take_flag(&header.sleeps) and ring.wake_fd >= 0:
        write(ring.wake_fd, b"w", 1)            # if the pipe is full, it is awake


cdef char *reserve_or_hold(Producer *ring, size_t n) noexcept nogil:
    cdef Held *one
    cdef char *at
    if ring.first != NULL:
        settle(ring)
    if ring.first == NULL:
        at = reserve(ring, n)
        if at != NULL:
            return at
    if ring.held + sizeof(Held) + n > ring.most_held or n > MOST_HELD_RECORD:
        return NULL
    one = <Held *>malloc(sizeof(Held) + n)
    if one == NULL:
        return NULL
    one.room = n
    ring.filling = one
    return <char *>(one + 1)


cdef void hold(Producer *ring, Kind kind, uint16_t worker, uint64_t request,
               size_t n) noexcept nogil:
    cdef Held *one = ring.filling
    ring.filling = one.next = NULL
    one.kind = <uint16_t>kind
    one.worker = worker
    one.request = request
    one.length = n
    if ring.first == NULL:
        ring.first = one
    else:
        ring.last.next = one
    ring.last = one
    ring.held += sizeof(Held) + one.room


cdef void settle(Producer *ring) noexcept nogil:
    cdef Held *one
    cdef char *at
    while ring.first != NULL:
        one = ring.first
        at = reserve(ring, one.length)
        if at == NULL:
            return
        memcpy(at, one + 1, one.length)
        publish(ring, <Kind>one.kind, one.worker, one.request, one.length)
        drop_first(ring)


cdef void drop_first(Producer *ring) noexcept nogil:
    cdef Held *one = ring.first
    ring.first = one.next
    ring.held -= sizeof(Held) + one.room
    explicit_bzero(one + 1, one.room)           # it may have secrets
    free(one)


cdef uint64_t in_flight(const Producer *ring) noexcept nogil:
    return ring.header.head - load_position(&ring.header.tail) + ring.held


cdef class Ring:

    def __dealloc__(self):
        while self.producer.first != NULL:
            drop_first(&self.producer)
        free(self.producer.filling)

    def __init__(self, memory, int wake_fd=-1):
        """On writable `memory` of RING_BYTES bytes; zeroed memory is an empty ring.
        `wake_fd`: the producer's end of the consumer's pipe, not owned."""
        cdef unsigned char[::1] view = memory
        if view.shape[0] < RING_BYTES:
            raise ValueError("a ring has %d bytes" % RING_BYTES)
        self.memory = memory
        self.producer.header = <Header *>&view[0]
        self.producer.data = <char *>&view[HEADER_BYTES]
        self.producer.wake_fd = wake_fd
        self.read_to = self.producer.header.tail
        self.open = set()
        if self.read_to < self.producer.header.turn <= self.producer.header.head:
            self.again = self.producer.header.turn

    def counts(self):
        """Numbers of exchanges by result, since the ring was made."""
        cdef Header *header = self.producer.header
        return {"captured": header.exchanges, "dropped": header.dropped,
                "partial": header.parts + header.forgotten, "unwritten": header.unwritten}

    def hold(self, size_t most):
        """Records that must not be lost wait in memory for room: at most as many bytes."""
        self.producer.most_held = most

    def settle(self):
        """Moves records that wait into the ring. False: some have no room yet."""
        settle(&self.producer)
        return self.producer.first == NULL

    @property
    def in_use(self):
        """Bytes that the producer has filled and the consumer has not released."""
        return load_position(&self.producer.header.head) - self.producer.header.tail

    @property
    def unread(self):
        """Bytes that the consumer has not read."""
        return load_position(&self.producer.header.head) - self.read_to

    def read(self, Py_ssize_t most):
        """Returns (kind, worker, request, payload) of the next records, some `most` bytes of
        them; []: there are none. `release` gives their room back. After a consumer that was
        killed, these are first the records of its last turn that are still there.

        A record that cannot be one ends the reading: the ring is taken as empty."""
        cdef uint64_t head = load_position(&self.producer.header.head)
        cdef uint64_t at = self.read_to
        cdef uint64_t end = self.again or min(head, at + <uint64_t>most)
        cdef Record *record
        cdef const Record *begun = NULL         # of an exchange that has no END yet
        cdef list found = []
        while at < end:
            record = <Record *>(self.producer.data + at % DATA_BYTES)
            if record.size < 8 or record.size & 7 or record.size > head - at or (
                    record.size > DATA_BYTES - at % DATA_BYTES):
                at = head
                break
            if record.kind != PADDING:
                if record.size < sizeof(Record) or record.length > record.size - sizeof(Record):
                    at = head
                    break
                found.append((record.kind, record.worker, record.request,
                              PyBytes_FromStringAndSize(<char *>(record + 1), record.length)))
                # Records of most exchanges come together: without a look at the set
                if begun == NULL or not is_same(begun, record):
                    if begun != NULL:
                        self.open.add((begun.worker, begun.request))
                    begun = record
                if record.kind == END:
                    if self.open:
                        self.open.discard((record.worker, record.request))
                    begun = NULL
            at += record.size
        if begun != NULL:
            self.open.add((begun.worker, begun.request))
        self.read_to = self.producer.header.turn = at
        self.is_again, self.again = self.again != 0, 0
        if self.is_again and not found:         # all of them are erased
            return self.read(most)
        return found

    @property
    def turn(self):
        """The end of what was read last: bytes since the ring was made."""
        return self.read_to

    @property
    def name(self):
        """Of this ring, until it is unmapped everywhere."""
        if not self.producer.header.name:
            self.producer.header.name = secrets.randbits(62) + 1
        return self.producer.header.name

    def release(self):
        """Erases the records that were read, and gives their room back: a secret is in this
        memory only until its exchange is stored. Those of exchanges without an end stay, for the
        next consumer. An erased record is padding, so a consumer that is killed here leaves
        nothing that its successor would misread."""
        cdef uint64_t at = self.producer.header.tail, tail = at
        cdef Record *record
        while at < self.read_to:
            record = <Record *>(self.producer.data + at % DATA_BYTES)
            if record.size < 8 or record.size > min(
                    self.read_to - at, DATA_BYTES - at % DATA_BYTES):
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

    cdef bint is_done_with(self, const Record *record, uint64_t at) except -1:
        if not self.open:
            return True
        key = (record.worker, record.request)
        if key in self.open:
            if self.read_to - at <= KEPT_BYTES:
                return False
            self.open.discard(key)              # its other records are of no use alone
        return True

    def sleep(self):
        """Announces that the consumer waits to be woken. False: there are records."""
        put_flag(&self.producer.header.sleeps)
        full_fence()
        return load_position(&self.producer.header.head) == self.read_to

    def wake(self):
        """The consumer is awake: no byte needs to be sent."""
        take_flag(&self.producer.header.sleeps)

    def set_failing(self, bint fails):
        """Whether the consumer can write what is recorded."""
        self.producer.header.fails = fails

    def add_unwritten(self, count):
        self.producer.header.unwritten += <uint64_t>count

    def add_forgotten(self, count):
        self.producer.header.forgotten += <uint64_t>count


cdef inline bint is_same(const Record *one, const Record *other) noexcept:
    """Whether both are of the same exchange."""
    return one.request == other.request and one.worker == other.worker
