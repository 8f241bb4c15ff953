"""Records of a ring, by exchange."""

from libc.stdint cimport uint16_t
from cutthrough.tape.record cimport Record

cdef enum:
    MOST_OF_WHOLE = 16          # records of an exchange that is taken as a whole
    MOST_BEGUN = 512            # exchanges that are gathered at a time
    MOST_MARKS = 1024

# All records of an exchange, where they are in the ring: until its `release`.
cdef class Whole:
    cdef const Record *records[MOST_OF_WHOLE]
    cdef int n                  # of them; the last is the END
    cdef object owner           # of their memory

# An exchange of which a read has come to records, and to no END yet.
cdef struct Begun:
    const Record *records[MOST_OF_WHOLE]
    int n                       # 0: this place is free

cdef class Gathered:
    cdef object owner           # of the records' memory
    cdef Begun begun[MOST_BEGUN]        # by the remainder of an exchange's number
    cdef int n_begun
    cdef set open               # exchanges of earlier records that stand apart, without an END
    cdef uint16_t marks[MOST_MARKS]     # how many of `open` have this remainder

    # Before the first record of a read.
    cdef void begin(self) noexcept
    # Adds to `records` what the record completes. False: the record stands apart, because its exchange
    # is open, has too many records, or has this one alone.
    cdef bint gather(self, const Record *record, list records) except -1
    # Adds the record alone.
    cdef int put_apart(self, const Record *record, list records) except -1
    # Behind the last record: returns those whose exchanges have no END. They stand apart.
    cdef list end(self)
    cdef int _give_up(self, Begun *begun, list records) except -1
    cdef bint is_open(self, const Record *record) except -1
    cdef int set_open(self, const Record *record, bint is_open) except -1
