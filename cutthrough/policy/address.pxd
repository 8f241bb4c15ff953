"""What kind of place an address is (R27)."""

from libc.stdint cimport uint8_t

cdef enum:
    PUBLIC = 0
    CARRIED = 256           # a class of an IPv4 address that an IPv6 one carries: times this

    MOST_CARRIED = 4

# The IPv4 addresses that an IPv6 one carries, in network order.
cdef struct Carried:
    int n
    uint8_t v4[MOST_CARRIED][4]

# Finds them; returns how many. `data` are 16 bytes. A mapped address (::ffff:0:0/96) is
# IPv4 and not listed: every caller has it as IPv4 already.
cdef int find_carried(const uint8_t *data, Carried *found) noexcept nogil

# The class of an address: PUBLIC, a number for class_name, or how an IPv6 address carries
# an IPv4 one, plus CARRIED times the class of that. `family` is 4 or 6, `data` the address
# in network order.
cdef int classify(int family, const uint8_t *data) noexcept nogil
# The one word of a class below CARRIED, "public" for PUBLIC. Static.
cdef const char *class_name(int number) noexcept nogil
# Is it an ordinary, globally reachable unicast address, embedded IPv4 included?
cdef bint is_public(int family, const uint8_t *data) noexcept nogil
