# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Rows in C memory, on their way into a store.

The writer makes some 60 cells of each exchange. As Python's objects in tuples they took as
long as their insertion. SQLite reads the cells where they are (sqlite_batch.pyx); a store in
PostgreSQL takes tuples, which iteration makes.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(str text, Py_ssize_t *n) except NULL

cdef enum:
    # Bytes that an empty batch keeps: a turn of the writer without bodies
    MOST_KEPT = 4 << 20


cdef class Batch:
    """Rows of `width` cells each. A cell is None, an int of 64 bits, a str or bytes."""

    def __cinit__(self, int width):
        self.width = width

    def __dealloc__(self):
        free(self.cells)
        free(self.bytes)

    @staticmethod
    def of(rows, int width):
        """A batch of these tuples. Raises ValueError."""
        cdef Batch batch = Batch(width)
        for row in rows:
            batch.append(row)
        return batch

    def append(self, tuple row not None):
        """Adds a row. Raises ValueError if that cannot be a row, and then adds nothing."""
        cdef size_t n_cells = self.n_cells
        if len(row) != self.width:
            raise ValueError(f"a row of {len(row)} cells for {self.width} columns")
        try:
            for value in row:
                self.any(value)
        except BaseException as error:
            self.drop_from(n_cells)
            if isinstance(error, (TypeError, OverflowError)):
                raise ValueError(str(error)) from None
            raise

    def clear(self):
        self.n_cells = self.n_bytes = self.begin = 0
        if self.most_bytes > MOST_KEPT:
            free(self.bytes)
            self.bytes = NULL
            self.most_bytes = 0

    def keep_last(self, size_t count):
        """Leaves out all rows but so many."""
        if <size_t>len(self) > count:
            self.begin = self.n_cells - count * self.width

    def __len__(self):
        return (self.n_cells - self.begin) // self.width

    def __iter__(self):
        cdef size_t at
        for at in range(self.begin, self.n_cells, self.width):
            yield tuple([self.value(at + i) for i in range(self.width)])

    def column(self, size_t column):
        """The cells of a column."""
        cdef size_t at
        return [self.value(at + column) for at in range(self.begin, self.n_cells, self.width)]

    def pick(self, size_t row, columns):
        """The cells of a row in these columns."""
        cdef size_t at = self.begin + row * self.width
        return [self.value(at + <size_t>column) for column in columns]

    cdef object value(self, size_t at):
        cdef Cell *cell = self.cells + at
        if cell.kind == NUMBER:
            return cell.number
        if cell.kind == TEXT:
            return PyUnicode_DecodeUTF8(self.bytes + cell.number, cell.n, NULL)
        if cell.kind == BLOB:
            return PyBytes_FromStringAndSize(self.bytes + cell.number, cell.n)
        return None

    def sum(self, int column):
        """Returns the sum of the numbers in a column."""
        cdef int64_t total = 0
        cdef size_t at
        for at in range(self.begin + column, self.n_cells, self.width):
            if self.cells[at].kind == NUMBER:
                total += self.cells[at].number
        return total

    def pack(self, pairs, int size_column, pack, size_t least):
        """For each pair of columns: a text or blob of the first column, of at least `least` bytes,
        moves to the second as pack(bytes, is_text) returns it, if that is shorter. The cell of
        the first column is empty then, and the number in `size_column` smaller by as much."""
        cdef size_t at
        cdef Cell *cell
        cdef Cell *packed
        cdef int64_t length
        cdef bytes data
        cdef int column, beside
        for column, beside in pairs:
            for at in range(self.begin, self.n_cells, self.width):
                cell, packed = self.cells + at + column, self.cells + at + beside
                if cell.n < least or cell.kind != TEXT and cell.kind != BLOB:
                    continue
                data = pack(PyBytes_FromStringAndSize(self.bytes + cell.number, cell.n),
                            cell.kind == TEXT)
                if <size_t>len(data) < cell.n:
                    length = length_of(self.bytes + cell.number, cell)
                    memcpy(self.bytes + cell.number, PyBytes_AS_STRING(data), len(data))
                    packed.kind, packed.number, packed.n = BLOB, cell.number, len(data)
                    self.cells[at + size_column].number += len(data) - length
                    cell.kind, cell.n = NOTHING, 0

    def used(self):
        """The columns that are not null in all rows."""
        cdef bytearray is_used = bytearray(self.width)
        cdef char *marks = is_used
        cdef int *unused = <int *>grown(NULL, self.width * sizeof(int))
        cdef int n = self.width
        cdef int i
        cdef size_t at
        for i in range(n):
            unused[i] = i
        # Row by row, as they lie in memory; behind the first one few columns are left
        for at in range(self.begin, self.n_cells, self.width):
            i = 0
            while i < n:
                if self.cells[at + unused[i]].kind == NOTHING:
                    i += 1
                    continue
                marks[unused[i]] = 1
                n -= 1
                unused[i] = unused[n]
        free(unused)
        return tuple([i for i in range(self.width) if is_used[i]])

    # Each of these adds the next cell.

    cdef Cell *add(self, CellKind kind) except NULL:
        cdef Cell *cell
        if self.n_cells == self.most_cells:
            self.most_cells = 2 * self.most_cells or 64 * <size_t>self.width
            self.cells = <Cell *>grown(self.cells, self.most_cells * sizeof(Cell))
        cell = self.cells + self.n_cells
        self.n_cells += 1
        cell.kind = kind
        cell.n = 0
        cell.number = <int64_t>self.n_bytes
        return cell

    cdef int nothing(self) except -1:
        self.add(NOTHING)
        return 0

    cdef int number(self, int64_t number) except -1:
        self.add(NUMBER).number = number
        return 0

    cdef int some(self, int64_t number) except -1:
        """Null if it is 0."""
        return self.number(number) if number else self.nothing()

    cdef int text(self, const char *data, size_t n) except -1:
        memcpy(self.begin_of(TEXT, n), data, n)
        return self.end_at(self.bytes + self.n_bytes + n)

    cdef int latin1(self, const char *data, size_t n) except -1:
        cdef char *at = self.begin_of(TEXT, 2 * n)
        cdef uint8_t octet
        cdef size_t i
        for i in range(n):
            octet = <uint8_t>data[i]
            if octet < 0x80:
                at[0] = <char>octet
                at += 1
            else:
                at[0] = <char>(0xc0 | octet >> 6)
                at[1] = <char>(0x80 | octet & 0x3f)
                at += 2
        return self.end_at(at)

    cdef int any(self, object value) except -1:
        cdef const char *data
        cdef Py_ssize_t n = 0
        if value is None:
            return self.nothing()
        if isinstance(value, str):
            data = PyUnicode_AsUTF8AndSize(value, &n)
            return self.text(data, n)
        if isinstance(value, bytes):
            n = PyBytes_GET_SIZE(value)
            memcpy(self.begin_of(BLOB, n), PyBytes_AS_STRING(value), n)
            return self.end_at(self.bytes + self.n_bytes + n)
        if isinstance(value, int):
            return self.number(value)
        raise TypeError(f"{type(value).__name__} in a row")

    cdef char *begin_of(self, CellKind kind, size_t most) except NULL:
        """The place for the bytes of the next cell: `most` at most, until `end_at`."""
        cdef size_t wanted = self.n_bytes + most + 1         # never NULL
        if wanted > self.most_bytes:
            wanted = max(wanted, 2 * self.most_bytes)
            self.bytes = <char *>grown(self.bytes, wanted)
            self.most_bytes = wanted
        self.add(kind)
        return self.bytes + self.n_bytes

    cdef int end_at(self, const char *end) except -1:
        cdef size_t n = end - (self.bytes + self.n_bytes)
        self.cells[self.n_cells - 1].n = n
        self.n_bytes += n
        return 0

    cdef int drop_from(self, size_t n_cells) except -1:
        """Takes back cells that were added from there on."""
        self.n_cells = min(n_cells, self.n_cells)
        return 0


cdef int64_t length_of(const char *data, const Cell *cell) noexcept:
    """Characters of a text, or bytes."""
    cdef int64_t length = cell.n
    cdef size_t i
    for i in range(cell.n if cell.kind == TEXT else 0):
        length -= (<uint8_t>data[i] & 0xc0) == 0x80
    return length


cdef void *grown(void *block, size_t size) except NULL:
    cdef void *memory = realloc(block, size)
    if memory == NULL:
        raise MemoryError
    return memory
