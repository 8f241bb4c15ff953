"""Numbered sets of texts that rules compare with: values of TLVs, fingerprints."""

from libc.stdint cimport uint32_t

cdef struct Value:
    const char *text
    size_t n

cdef struct Values:
    int kind                    # what they are compared with, as a subclass numbers it
    uint32_t n
    Value *values               # sorted

cdef struct Set:
    uint32_t n
    Values *rows

# Number 0 is no condition.
cdef class ValueSets:
    cdef Set *sets
    cdef uint32_t n
    cdef dict numbers
    cdef list texts             # the bytes that the values point into
    # What a rule has, as [(kind, values in bytes)].
    cdef list read(self, tuple written)
    cdef int add(self, list rows) except -1
    # The number of what a rule has, a new number for new values.
    cdef uint32_t number(self, tuple written) except? 0

cdef bint has_value(const Values *values, const char *text, size_t n) noexcept nogil
