"""The offer of a ClientHello, in a form that another one can repeat: see net.tls.offer."""

from cutthrough.wire.clienthello cimport ClientHello

# Version (2 bytes), flags (1: OFFERS_*), then ciphers, groups and signatures in their order, 2
# bytes each and each list behind a byte with their number; without GREASE, and at most
# MOST_OFFERED of each.
cdef bytes offer_of(const ClientHello *hello)
