"""A ring of records in shared memory, with one producer and one consumer."""

from libc.stdint cimport uint16_t, uint64_t
from cutthrough.tape.gathered cimport Gathered
from cutthrough.tape.record cimport Kind, Record

cdef enum:
    # Bytes of records, powers of two. The most: some 20 000 exchanges, or 0.4 s of bodies at 80
    # MB/s. And the least that a ring has
    DATA_BYTES = 33554432
    LEAST_BYTES = 8388608

# Head and tail are counts of bytes since the ring was made; their difference is in use. Each
# side writes its own cache lines.
cdef struct Header:
    uint64_t head               # the producer's: bytes that may be read
    uint64_t exchanges          # ends of exchanges put into the ring
    uint64_t dropped            # ends that found no room
    uint64_t parts              # heads and pieces of bodies that found no room
    uint64_t gap[4]
    uint64_t tail               # the consumer's: bytes before it are free
    uint64_t sleeps             # 1: it waits to be woken
    uint64_t sleeps_to          # … when `head` has come so far
    uint64_t unwritten          # exchanges that it could not write
    uint64_t forgotten          # exchanges left out because their parts had no memory
    uint64_t fails              # 1: it cannot write recordings
    uint64_t turn               # the end of this turn's bytes
    uint64_t size               # bytes of records, a power of two; 0: the most
    uint64_t name               # random, so that a store knows the ring again; 0: it has none
    uint64_t failed             # exchanges that could not be handled, and were left out
    uint64_t in_hand            # the end of bytes read and not released; odd: one exchange; or 0
    uint64_t suspect            # such an end at which a consumer has died …
    uint64_t deaths             # … and how many have, one after the other
    uint64_t pending            # exchanges that were released, and wait in its memory for a store
    uint64_t handed             # up to there its memory has had all recordings, and counts them
    uint64_t beats              # turns of its loop; unchanged if it hangs
    uint64_t exported           # exchanges whose spans were exported
    uint64_t untraced           # … and lost

# A record that had no room; its payload follows.
cdef struct Held:
    Held *next
    size_t room                 # bytes of payload
    size_t length               # of these, used
    uint64_t request
    uint16_t kind
    uint16_t worker

# The producer's view of a ring.
cdef struct Producer:
    Header *header
    char *data
    uint64_t size               # of the data
    int wake_fd                 # a pipe to the consumer; -1: none
    Held *first                 # of the records that wait for room; NULL: none does
    Held *last
    Held *filling               # reserved last; NULL: that is in the ring
    size_t held                 # bytes of them
    size_t most_held

# Room for a record with `n` bytes of payload, which begin at the returned pointer; NULL: none.
# Nothing is visible to the consumer before `publish`.
cdef char *reserve(Producer *ring, size_t n) noexcept nogil
# As reserve, if no record of the exchange may be lost: when the ring has no room, records wait in
# the worker's memory, at most `most_held` bytes. All records of the exchange are reserved so.
cdef char *reserve_or_hold(Producer *ring, size_t n) noexcept nogil
# Moves records that wait into the ring, as far as it has room.
cdef void settle(Producer *ring) noexcept nogil
# Bytes on their way to the consumer.
cdef uint64_t in_flight(const Producer *ring) noexcept nogil
# Makes the record that was reserved last visible, with `n` bytes at most as many as reserved.
cdef void publish(Producer *ring, Kind kind, uint16_t worker, uint64_t request,
                  size_t n) noexcept nogil

cdef inline uint64_t size_of(const Header *header) noexcept:
    cdef uint64_t size = header.size
    return size if LEAST_BYTES <= size <= DATA_BYTES and size & (size - 1) == 0 else DATA_BYTES

cdef class Ring:
    cdef Producer producer
    cdef object memory          # keeps it alive
    cdef uint64_t read_to       # the consumer's: the next record to read
    cdef Gathered gathered      # None: it has read nothing
    cdef uint64_t again          # where the last turn of a killed consumer ended; 0: done with
    cdef readonly bint is_again  # the last read was that turn, or a part of it
    cdef bint has_begun          # the consumer has read
    cdef uint64_t alone_to       # up to there each exchange is read alone: one ended a consumer
    cdef readonly bint reads_alone    # the next `read` ends with an exchange
    cdef readonly bint is_deadly      # the exchange that was read last has ended two consumers

    cdef bint begin(self) except -1
    cdef bint is_done_with(self, const Record *record, uint64_t at) except -1
