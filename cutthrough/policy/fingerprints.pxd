"""Numbered sets of JA4 fingerprints, for rules."""

from libc.stdint cimport uint8_t, uint32_t

cdef struct Set:
    char *keys              # sorted, JA4_BYTES each
    uint32_t n
    uint8_t masks           # a bit for each combination of starred parts that the set uses

# Number 0 is no condition.
cdef class FingerprintSets:
    cdef Set *sets
    cdef uint32_t n
    cdef dict numbers
    cdef int add(self, tuple patterns) except -1
    # The number of this set of patterns, a new number for a new set.
    cdef uint32_t number(self, tuple patterns) except? 0
    # `ja4` has JA4_BYTES characters.
    cdef bint contains(self, uint32_t number, const char *ja4) noexcept nogil
