# cython: binding=False
"""The addresses of this host's interfaces, by getifaddrs(3).

psutil has them too, and takes 7 ms to be imported.
"""

from cpython.exc cimport PyErr_SetFromErrno

from cutthrough.net.linux cimport AF_INET, AF_INET6, sockaddr, socklen_t

cdef extern from "<ifaddrs.h>" nogil:
    struct ifaddrs:
        ifaddrs *ifa_next
        sockaddr *ifa_addr
    int getifaddrs(ifaddrs **first)
    void freeifaddrs(ifaddrs *first)

cdef extern from "<netinet/in.h>" nogil:
    struct in_addr:
        pass
    struct in6_addr:
        pass
    struct sockaddr_in:
        in_addr sin_addr
    struct sockaddr_in6:
        in6_addr sin6_addr

cdef extern from "<arpa/inet.h>" nogil:
    enum: INET6_ADDRSTRLEN
    const char *inet_ntop(int family, const void *address, char *text, socklen_t size)


def own_hosts() -> list:
    """Every address of this host, now, without a zone. Raises OSError."""
    cdef ifaddrs *first = NULL
    cdef ifaddrs *entry
    cdef const void *address
    cdef char[INET6_ADDRSTRLEN] text
    cdef list hosts = []
    if getifaddrs(&first) < 0:
        PyErr_SetFromErrno(OSError)
    try:
        entry = first
        while entry != NULL:
            if entry.ifa_addr != NULL:          # of an interface without an address
                if entry.ifa_addr.sa_family == AF_INET:
                    address = &(<sockaddr_in *>entry.ifa_addr).sin_addr
                elif entry.ifa_addr.sa_family == AF_INET6:
                    address = &(<sockaddr_in6 *>entry.ifa_addr).sin6_addr
                else:
                    address = NULL
                if address != NULL and inet_ntop(
                        entry.ifa_addr.sa_family, address, text, sizeof(text)) != NULL:
                    hosts.append(text.decode("ascii"))
            entry = entry.ifa_next
    finally:
        freeifaddrs(first)
    return hosts
