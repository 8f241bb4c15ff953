"""What a listener serves, and to whom without credentials."""

from libc.stdint cimport uint32_t
from cutthrough.net.address cimport Address
from cutthrough.net.intercepted cimport Way
from cutthrough.policy.networks cimport NetworkSets

# Shared by the connections of a listener, and never changed.
cdef class Entrance:
    cdef bint http
    cdef bint socks5
    cdef bint socks4
    cdef bint udp                   # ASSOCIATE of SOCKS5
    cdef bint needs_user            # every client needs credentials
    cdef bint is_for_all            # else: no client does; False: those in `networks` do not
    cdef Way transparent            # clients know of no proxy
    cdef NetworkSets networks       # one set, or the empty one
    cdef uint32_t number

    # May a client of this address go on without credentials?
    cdef bint admits_anonymous(self, const Address *address) noexcept
