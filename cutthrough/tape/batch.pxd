"""Rows in C memory, on their way into a store."""

from libc.stdint cimport int64_t

cdef enum CellKind:
    NOTHING = 0                     # null
    NUMBER
    TEXT                            # UTF-8
    BLOB

cdef struct Cell:
    int64_t number                  # or where the bytes begin
    size_t n                        # bytes
    CellKind kind

cdef class Batch:
    cdef readonly int width         # cells of a row
    cdef Cell *cells
    cdef char *bytes
    cdef size_t n_cells, most_cells, most_bytes
    cdef readonly size_t n_bytes    # of texts and blobs
    cdef size_t begin               # cells that are left out before the first row
    cdef object value(self, size_t at)
    cdef Cell *add(self, CellKind kind) except NULL
    cdef int nothing(self) except -1
    cdef int number(self, int64_t number) except -1
    cdef int some(self, int64_t number) except -1
    cdef int text(self, const char *data, size_t n) except -1
    cdef int latin1(self, const char *data, size_t n) except -1
    cdef int any(self, object value) except -1
    cdef char *begin_of(self, CellKind kind, size_t most) except NULL
    cdef int end_at(self, const char *end) except -1
    cdef int drop_from(self, size_t n_cells) except -1
