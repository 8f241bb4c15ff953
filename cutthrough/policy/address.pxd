"""What kind of place an address is (R27)."""

from libc.stdint cimport uint8_t

# Is it an ordinary, globally reachable unicast address, embedded IPv4 included?
# `family` is 4 or 6, `data` the address in network order.
cdef bint is_public(int family, const uint8_t *data) noexcept nogil
