"""A named origin: what its servers get of a request, whichever of them has it."""

from libc.stdint cimport uint8_t, uint32_t
from cutthrough.policy.networks cimport NetworkSets

cdef class Origin:
    """One origin of one generation; immutable."""
    cdef readonly str name
    cdef int forwarded          # a set of wire.origin_head.ForwardedFields; 0: none
    cdef bint reuses            # a connection of its servers is for further requests
    cdef NetworkSets networks
    cdef uint32_t senders       # whose forwarded fields are believed; 0: nobody's

    cdef bint trusts(self, int family, const uint8_t *data) noexcept
