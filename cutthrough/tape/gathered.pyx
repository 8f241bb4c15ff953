# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Records of a ring, as its consumer reads them, by exchange: those of one that ends are a Whole.

    HEADS 7, HEADS 8, DOWN 7, END 7, DOWN 8, END 8, HEADS 9 ──> Whole 7, Whole 8; HEADS 9 apart

A worker answers several requests in a batch of events, so the records of one stand between those
of others. The numbers of a worker's exchanges follow each other: their remainders are places for as
many of the newest. If an exchange loses its place to a newer one, its records stand apart.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.string cimport memcpy, memset
from cutthrough.tape.record cimport END, Record, is_same, payload_of


cdef class Whole:
    pass


cdef class Gathered:

    def __cinit__(self, owner):
        self.owner = owner
        self.open = set()

    cdef void begin(self) noexcept:
        if self.n_begun:                    # the last read failed
            memset(self.begun, 0, sizeof(self.begun))
            self.n_begun = 0

    cdef bint gather(self, const Record *record, list records) except -1:
        cdef Begun *begun = &self.begun[record.request & (MOST_BEGUN - 1)]
        cdef Whole whole
        if begun.n and is_same(begun.records[0], record):
            if begun.n == MOST_OF_WHOLE:
                self._give_up(begun, records)
                return False
        elif record.kind == END or self.is_open(record):
            return False
        else:
            if begun.n:
                self._give_up(begun, records)
            self.n_begun += 1
        begun.records[begun.n] = record
        begun.n += 1
        if record.kind == END:
            whole = Whole.__new__(Whole)
            whole.n, whole.owner = begun.n, self.owner
            memcpy(whole.records, begun.records, begun.n * sizeof(const Record *))
            records.append(whole)
            begun.n = 0
            self.n_begun -= 1
        return True

    cdef int _give_up(self, Begun *begun, list records) except -1:
        cdef int n = begun.n, i
        begun.n = 0
        self.n_begun -= 1
        for i in range(n):
            self.put_apart(begun.records[i], records)
        return 0

    cdef list end(self):
        cdef list records = []
        cdef int i
        for i in range(<int>MOST_BEGUN if self.n_begun else 0):
            if self.begun[i].n:
                self._give_up(&self.begun[i], records)
        return records

    cdef int put_apart(self, const Record *record, list records) except -1:
        records.append((record.kind, record.worker, record.request,
                        PyBytes_FromStringAndSize(payload_of(record), record.length)))
        return self.set_open(record, record.kind != END)

    cdef bint is_open(self, const Record *record) except -1:
        # Of most exchanges the mark says it, without an object
        return self.marks[record.request & (MOST_MARKS - 1)] and (
            (record.worker, record.request) in self.open)

    cdef int set_open(self, const Record *record, bint is_open) except -1:
        if self.is_open(record) != is_open:
            if is_open:
                self.open.add((record.worker, record.request))
            else:
                self.open.discard((record.worker, record.request))
            self.marks[record.request & (MOST_MARKS - 1)] += 1 if is_open else -1
        return 0
