# cython: language_level=3
"""Connections that were on their way to another address, and the kernel's word for it.

REDIRECT changes the destination in the packets; conntrack keeps the former one
(linux/netfilter_ipv4.h, linux/netfilter_ipv6/ip6_tables.h). TPROXY changes nothing: the socket
has the address of the destination (Documentation/networking/tproxy.rst).
"""

from cutthrough.net cimport linux
from cutthrough.net.address cimport from_sockaddr
from cutthrough.net.linux cimport sockaddr_storage, socklen_t
from cutthrough.net.sysio cimport read_own_name

cdef enum:
    ORIGINAL_DST = 80           # SO_ORIGINAL_DST and IP6T_SO_ORIGINAL_DST

WAYS = {"off": NOT_INTERCEPTED, "redirect": BY_REDIRECT, "tproxy": BY_TPROXY}


cdef bint read_destination(const Socket *s, Way way, Address *out) noexcept:
    cdef sockaddr_storage name
    cdef socklen_t n = sizeof(name)
    cdef int level
    if not read_own_name(s, &name):
        return False
    if way == BY_REDIRECT:
        level = linux.IPPROTO_IP if name.ss_family == linux.AF_INET else linux.IPPROTO_IPV6
        # ENOENT: the connection was not redirected. Then its name is unchanged
        linux.getsockopt(s.fd, level, ORIGINAL_DST, &name, &n)
    return from_sockaddr(&name, out)
