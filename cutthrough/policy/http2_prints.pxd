"""Numbered sets of HTTP/2 fingerprints, for rules."""

from libc.stdint cimport uint32_t

cdef enum:
    PARTS = 4

cdef struct Part:
    const char *text        # NULL: any
    size_t n

cdef struct Pattern:
    Part parts[PARTS]

cdef struct Set:
    Pattern *patterns
    uint32_t n

# Number 0 is no condition.
cdef class Http2PrintSets:
    cdef Set *sets
    cdef uint32_t n
    cdef dict numbers
    cdef list texts         # the bytes that the parts point into
    cdef int add(self, tuple patterns) except -1
    # The number of this set of patterns, a new number for a new set.
    cdef uint32_t number(self, tuple patterns) except? 0
    # `text`: see http2.fingerprint; NULL: unknown, which is in no set.
    cdef bint contains(self, uint32_t number, const char *text, size_t n) noexcept nogil
