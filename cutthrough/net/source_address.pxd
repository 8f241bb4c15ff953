"""The local end of outgoing connections: an address, a device, and the kernel's options."""

from libc.stdint cimport int64_t, uint64_t
from cutthrough.net.address cimport Address
from cutthrough.net.transport cimport Socket

# How one of the addresses is selected.
cdef enum Choice:
    RANDOM = 0
    STICKY_USER
    STICKY_DESTINATION

# The origin of a selected address.
cdef enum Selected:
    BY_KERNEL = 0
    LISTED
    DRAWN                       # from the prefix, and probably not configured on this host

cdef enum:
    DEVICE_NAME = 16            # IFNAMSIZ, NUL included

cdef class Source:
    """One configured source. Immutable."""
    cdef readonly str name
    cdef Choice choice
    cdef uint64_t failures      # of `prepare`, since the start
    cdef Address *addresses
    cdef int n
    cdef Address prefix         # family 0: none; the host part is zero
    cdef int prefix_bits
    cdef char device[DEVICE_NAME]   # "": any
    cdef int64_t mark           # -1: none
    cdef int dscp               # -1: none
    cdef bint families[7]       # [4], [6]: has an address of this family

    # Whether a connection to an address of this family may come from here.
    cdef bint serves(self, int family) noexcept
    # Sets the address and the options of an unconnected socket of this family. Equal draws
    # select equal addresses. 0, or an errno.
    cdef int prepare(self, const Socket *s, int family, uint64_t draw) noexcept
    cdef int set_options(self, int fd, int family) noexcept
    cdef Selected select(self, int family, uint64_t draw, Address *out) noexcept

# A draw that is not predictable.
cdef uint64_t random_draw() noexcept
