"""Connections that were on their way to another address."""

from cutthrough.net.address cimport Address
from cutthrough.net.transport cimport Socket

# How the kernel brought the connection here.
cdef enum Way:
    NOT_INTERCEPTED = 0
    BY_REDIRECT                 # nftables' redirect: conntrack knows the address
    BY_TPROXY                   # it is the socket's own address

# The address and port that the client connected to. Without a redirection, this host's own.
# False: the socket is closed.
cdef bint read_destination(const Socket *s, Way way, Address *out) noexcept
