"""A rule's demands of the TLVs in a PROXY header."""

from libc.stdint cimport uint32_t
from cutthrough.policy.value_sets cimport ValueSets

# Of Rule.tlvs: demands, all of which must be met. A kind is wire.proxy_header's Tlv.
cdef class TlvSets(ValueSets):
    # `records`: from keep_tlvs; NULL: none.
    cdef bint are_met(self, uint32_t number, const char *records, size_t n) noexcept nogil
