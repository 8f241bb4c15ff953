# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A named origin: what its servers get of a request, whichever of them has it.

Its servers are members of a Way: see `parents`.
"""

from cutthrough.policy.networks cimport NetworkSets, key_of, key_of_v4
from cutthrough.wire.origin_head cimport (
    FORWARDED_DROPPED, FORWARDED_ELEMENT, FORWARDED_X)

cdef dict FORWARDED = {
    "keep": 0, "remove": FORWARDED_DROPPED, "x": FORWARDED_DROPPED | FORWARDED_X,
    "rfc7239": FORWARDED_DROPPED | FORWARDED_ELEMENT,
    "both": FORWARDED_DROPPED | FORWARDED_X | FORWARDED_ELEMENT}


cdef class Origin:

    def __init__(self, source):
        """From a config.origins.Origin."""
        self.name = source.name
        self.forwarded = FORWARDED[source.forwarded]
        self.reuses = source.reuse
        self.networks = NetworkSets()
        self.senders = self.networks.number(tuple(source.forwarded_from))
        self.networks.seal()

    cdef bint trusts(self, int family, const uint8_t *data) noexcept:
        if self.senders == 0 or (family != 4 and family != 6):
            return False                # a caller on a unix socket is in no network
        return self.networks.contains(
            self.senders, key_of_v4(data) if family == 4 else key_of(data))
