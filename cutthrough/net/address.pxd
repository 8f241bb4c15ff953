"""Internet addresses as plain values, and a name's list of addresses.

A caller on a unix socket has an address too, for limits, back-off and logs: its user id, and
what distinguishes the socket from others. It is in no network.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from cutthrough.net.linux cimport sockaddr_storage, socklen_t

cdef enum:
    MAX_ADDRESSES = 16          # of one name; further addresses are not tried
    ADDRESS_TEXT = 48           # room for any address in text, NUL included
    UNIX_CALLER = 1             # family of callers on unix sockets

cdef struct Address:
    uint8_t family              # 4, 6, UNIX_CALLER; 0: none
    uint8_t bytes[16]           # network order; IPv4 in the first four
    uint16_t port               # host order

cdef socklen_t to_sockaddr(const Address *address, sockaddr_storage *out) noexcept nogil
# An IPv4-mapped IPv6 address becomes IPv4. False: another family.
cdef bint from_sockaddr(const sockaddr_storage *name, Address *out) noexcept nogil
# The caller on a connected unix socket, as the kernel names it. `tag`: the listener's.
cdef void from_unix(int fd, uint32_t tag, Address *out) noexcept nogil
# Text without the port; `unix:1000` of a caller with this user id; returns its length.
cdef int print_address(const Address *address, char *out) noexcept nogil
cdef bint parse_address(const char *text, Address *out) noexcept nogil
# Whether the kernel has a source address for this destination.
cdef bint has_source(const Address *address) noexcept
cdef bint is_same_address(const Address *a, const Address *b) noexcept nogil

cdef class Addresses:
    """A name's addresses, in the order of attempts; immutable once made."""
    cdef readonly int n
    cdef Address items[MAX_ADDRESSES]
    cdef int64_t expires_ms

cdef Addresses one_address(int family, const uint8_t *data)
