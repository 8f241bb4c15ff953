"""A rule's demands of the TLVs in a PROXY header."""

from libc.stdint cimport uint32_t

cdef struct Value:
    const char *text
    size_t n

cdef struct Wanted:         # one TLV, which must have one of these values
    int tlv                 # wire.proxy_header's Tlv
    uint32_t n
    Value *values           # sorted

cdef struct Set:
    uint32_t n
    Wanted *wanted

# Numbered sets of demands, all of which must be met. Number 0 is no condition.
cdef class TlvSets:
    cdef Set *sets
    cdef uint32_t n
    cdef dict numbers
    cdef list texts         # the bytes that the values point into
    cdef int add(self, tuple tlvs) except -1
    # The number of Rule.tlvs, a new number for new demands.
    cdef uint32_t number(self, tuple tlvs) except? 0
    # `kept`: from keep_tlvs; NULL: none.
    cdef bint are_met(self, uint32_t number, const char *records, size_t n) noexcept nogil
