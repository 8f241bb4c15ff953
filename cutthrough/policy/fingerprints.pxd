"""Numbered sets of fingerprints, for rules."""

from libc.stdint cimport uint32_t
from cutthrough.policy.value_sets cimport ValueSets

# A kind is a set of starred parts, as bits.
cdef class FingerprintSets(ValueSets):
    cdef char separator         # of a fingerprint's parts
    cdef list read(self, tuple patterns)
    # `text`: NULL: unknown, which is in no set.
    cdef bint contains(self, uint32_t number, const char *text, size_t n) noexcept nogil
