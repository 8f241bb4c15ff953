# cython: language_level=3
"""Internet addresses as plain values, and a name's list of addresses."""

from libc.stdint cimport uint8_t, uint32_t
from libc.stdio cimport snprintf
from libc.string cimport memcmp, memcpy, memset, strlen
from cutthrough.net cimport linux
from cutthrough.net.linux cimport (
    AF_INET, AF_INET6, EADDRNOTAVAIL, errno, htonl, htons, inet_ntop, inet_pton, ntohs, sockaddr,
    sockaddr_in, sockaddr_in6, sockaddr_storage, socklen_t, ucred)

cdef enum:
    NOBODY = 65534              # user id if the kernel names none: its own overflowuid


cdef socklen_t to_sockaddr(const Address *address, sockaddr_storage *out) noexcept nogil:
    cdef sockaddr_in *v4 = <sockaddr_in *>out
    cdef sockaddr_in6 *v6 = <sockaddr_in6 *>out
    if address.family == 4:
        memset(v4, 0, sizeof(sockaddr_in))
        v4.sin_family = AF_INET
        v4.sin_port = htons(address.port)
        memcpy(&v4.sin_addr, address.bytes, 4)
        return sizeof(sockaddr_in)
    memset(v6, 0, sizeof(sockaddr_in6))
    v6.sin6_family = AF_INET6
    v6.sin6_port = htons(address.port)
    memcpy(&v6.sin6_addr, address.bytes, 16)
    return sizeof(sockaddr_in6)


cdef bint from_sockaddr(const sockaddr_storage *name, Address *out) noexcept nogil:
    cdef const sockaddr_in *v4 = <const sockaddr_in *>name
    cdef const sockaddr_in6 *v6 = <const sockaddr_in6 *>name
    cdef const char *mapped = b"\0\0\0\0\0\0\0\0\0\0\xff\xff"
    memset(out, 0, sizeof(Address))
    if name.ss_family == AF_INET:
        out.family = 4
        out.port = ntohs(v4.sin_port)
        memcpy(out.bytes, &v4.sin_addr, 4)
        return True
    if name.ss_family != AF_INET6:
        return False
    out.port = ntohs(v6.sin6_port)
    if memcmp(&v6.sin6_addr, mapped, 12) == 0:
        out.family = 4
        memcpy(out.bytes, <const uint8_t *>&v6.sin6_addr + 12, 4)
    else:
        out.family = 6
        memcpy(out.bytes, &v6.sin6_addr, 16)
    return True


cdef void from_unix(int fd, uint32_t tag, Address *out) noexcept nogil:
    """Limits count the first eight bytes of an address. As in a multicast address, which calls
    nobody, they begin with ff, because no IPv6 network may have the same."""
    cdef ucred credentials
    cdef socklen_t n = sizeof(credentials)
    memset(out, 0, sizeof(Address))
    out.family = UNIX_CALLER
    credentials.uid = NOBODY
    linux.getsockopt(fd, linux.SOL_SOCKET, linux.SO_PEERCRED, &credentials, &n)
    tag = htonl(tag | <uint32_t>0xff << 24)
    memcpy(out.bytes, &tag, 4)
    credentials.uid = htonl(credentials.uid)
    memcpy(out.bytes + 4, &credentials.uid, 4)


cdef int print_address(const Address *address, char *out) noexcept nogil:
    cdef uint32_t uid
    out[0] = 0
    if address.family == UNIX_CALLER:
        memcpy(&uid, address.bytes + 4, 4)
        return snprintf(out, ADDRESS_TEXT, "unix:%u", htonl(uid))
    if address.family == 4:             # a fifth of the time of inet_ntop, which uses sprintf
        return print_v4(address.bytes, out)
    if address.family:
        inet_ntop(AF_INET6, address.bytes, out, ADDRESS_TEXT)
    return <int>strlen(out)


cdef inline int print_v4(const uint8_t *octets, char *out) noexcept nogil:
    cdef int i, octet, n = 0
    for i in range(4):
        octet = octets[i]
        if octet >= 100:
            out[n] = <char>(48 + octet // 100)
            n += 1
        if octet >= 10:
            out[n] = <char>(48 + octet // 10 % 10)
            n += 1
        out[n], out[n + 1] = <char>(48 + octet % 10), b"."
        n += 2
    out[n - 1] = 0
    return n - 1


cdef bint parse_address(const char *text, Address *out) noexcept nogil:
    memset(out, 0, sizeof(Address))
    if inet_pton(AF_INET, text, out.bytes) == 1:
        out.family = 4
    elif inet_pton(AF_INET6, text, out.bytes) == 1:
        out.family = 6
    return out.family != 0


cdef bint is_same_address(const Address *a, const Address *b) noexcept nogil:
    """Whether the hosts are equal; ports are not compared."""
    return a.family == b.family and memcmp(
        a.bytes, b.bytes, 4 if a.family == 4 else 16) == 0


cdef bint has_source(const Address *address) noexcept:
    """Connects a datagram socket, because that sends no packet and needs no free port."""
    cdef sockaddr_storage name
    cdef socklen_t n = to_sockaddr(address, &name)
    cdef int fd = linux.socket(name.ss_family, linux.SOCK_DGRAM | linux.SOCK_CLOEXEC, 0)
    cdef bint is_available
    if fd < 0:
        return True
    is_available = linux.connect(fd, <sockaddr *>&name, n) == 0 or errno != EADDRNOTAVAIL
    linux.close(fd)
    return is_available


cdef Addresses one_address(int family, const uint8_t *data):
    cdef Addresses addresses = Addresses.__new__(Addresses)
    addresses.n = 1
    addresses.items[0].family = <uint8_t>family
    memcpy(addresses.items[0].bytes, data, 4 if family == 4 else 16)
    return addresses


cdef class Addresses:

    def __init__(self, texts, expires_ms=0):
        """From the resolver's texts; a text that is not an address is left out."""
        cdef Address address
        self.expires_ms = expires_ms
        for text in texts:
            if self.n < MAX_ADDRESSES and parse_address(text.encode(), &address):
                self.items[self.n] = address
                self.n += 1

    def __len__(self):
        return self.n

    def texts(self):
        """The addresses as a list of str."""
        cdef char text[ADDRESS_TEXT]
        cdef int i
        result = []
        for i in range(self.n):
            print_address(&self.items[i], text)
            result.append((<bytes>text).decode())
        return result
