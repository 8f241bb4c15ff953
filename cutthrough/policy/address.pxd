"""The class of an address: public, loopback, cloud metadata and others (R27)."""

from libc.stdint cimport uint8_t

cdef enum:
    PUBLIC = 0
    CARRIED = 256           # factor for the class of a carried IPv4 address, see classify

    MOST_CARRIED = 4

# The IPv4 addresses that an IPv6 address carries, in network order.
cdef struct Carried:
    int n
    uint8_t v4[MOST_CARRIED][4]

# Finds the carried addresses; returns their number. `data` is 16 bytes. The address in a mapped
# one (::ffff:0:0/96) is not included, because every caller treats it as IPv4 already.
cdef int find_carried(const uint8_t *data, Carried *carried) noexcept nogil

# Returns the class of an address: PUBLIC, or its number in the table of classes. For an IPv6
# address that carries an IPv4 one: the number of the carrier, plus CARRIED times the class of the
# IPv4 address. `family` is 4 or 6, `data` the address in network order.
cdef int classify(int family, const uint8_t *data) noexcept nogil
# Is it an ordinary, globally reachable unicast address, and a carried IPv4 address too?
cdef bint is_public(int family, const uint8_t *data) noexcept nogil
