"""A named origin: how its servers get a request."""

from libc.stdint cimport uint8_t, uint32_t
from cutthrough.policy.networks cimport NetworkSets

cdef class Origin:
    """One origin of one generation; immutable."""
    cdef readonly str name
    cdef int forwarded          # a set of wire.origin_head.ForwardedFields; 0: none
    cdef bint reuses            # connections of its servers are kept for further requests
    cdef NetworkSets networks
    cdef uint32_t senders       # networks with trusted forwarded fields; 0: none

    cdef bint trusts(self, int family, const uint8_t *data) noexcept
