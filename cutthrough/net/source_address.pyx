# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The source of outgoing connections: an address, a device, and the kernel's options.

A source has addresses, or a prefix to draw from, or neither. A number selects the address: a
hash of the user or of the destination, or a random number. Every worker and every start make
the same selection, and if an address is removed from the list, only the connections that had
it get another one (rendezvous hashing: the address with the highest weight wins).

IP_BIND_ADDRESS_NO_PORT leaves the port to connect(2), because bind(2) would take a port for all
destinations, and an address has 28 232 of them. If an address is drawn from a prefix, it is not
configured on this host: IP_FREEBIND lets a socket have it.
"""

import ipaddress

from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strlen
from cutthrough.net cimport linux
from cutthrough.net.address cimport to_sockaddr
from cutthrough.net.linux cimport errno, sockaddr, sockaddr_storage, socklen_t

CHOICES = {"random": RANDOM, "sticky_user": STICKY_USER,
           "sticky_destination": STICKY_DESTINATION}


cdef class Source:

    def __dealloc__(self):
        free(self.addresses)

    def __init__(self, name="", *, addresses=(), prefix="", choose="random", device="",
                 mark=-1, dscp=-1):
        """`addresses` and `prefix` are texts; `mark`, `dscp`: -1 for none. A prefix serves
        a family of which there are no addresses. Raises ValueError."""
        cdef bytes text = device.encode()
        cdef int i
        self.name = name
        self.choice = CHOICES[choose]
        self.n = len(addresses)
        self.addresses = <Address *>calloc(self.n + 1, sizeof(Address))
        if self.addresses == NULL:
            raise MemoryError
        for i, address in enumerate(addresses):
            set_address(&self.addresses[i], ipaddress.ip_address(address))
            self.families[self.addresses[i].family] = True
        if prefix:
            network = ipaddress.ip_network(prefix)
            set_address(&self.prefix, network.network_address)
            self.prefix_bits = network.prefixlen
            self.families[self.prefix.family] = True
        if len(text) >= DEVICE_NAME:
            raise ValueError(f"{device!r} is no name of a device")
        memcpy(self.device, <const char *>text, len(text))
        self.mark = mark
        self.dscp = dscp

    cdef bint serves(self, int family) noexcept:
        return self.families[family] or not (self.families[4] or self.families[6])

    cdef int prepare(self, const Socket *s, int family, uint64_t draw) noexcept:
        cdef Address address
        cdef Selected how = self.select(family, draw, &address)
        cdef int failed = self.set_options(s.fd, family)
        if failed or how == BY_KERNEL:
            return failed
        return bind_address(s.fd, &address, how == DRAWN)

    cdef int set_options(self, int fd, int family) noexcept:
        """0, or an errno."""
        if self.device[0] and linux.setsockopt(
                fd, linux.SOL_SOCKET, linux.SO_BINDTODEVICE, self.device,
                <socklen_t>strlen(self.device)) < 0:
            return errno
        if self.mark >= 0 and not set_number(fd, linux.SOL_SOCKET, linux.SO_MARK,
                                             <int>self.mark):
            return errno
        if self.dscp >= 0 and not (     # the upper six bits of the octet (RFC 2474 section 3)
                set_number(fd, linux.IPPROTO_IP, linux.IP_TOS, self.dscp << 2)
                if family == 4 else
                set_number(fd, linux.IPPROTO_IPV6, linux.IPV6_TCLASS, self.dscp << 2)):
            return errno
        return 0

    cdef Selected select(self, int family, uint64_t draw, Address *out) noexcept:
        cdef int i, best = -1
        cdef uint64_t weight, most = 0
        for i in range(self.n):
            if self.addresses[i].family == family:
                weight = mix(draw ^ digest(&self.addresses[i]))
                if best < 0 or weight > most:
                    best, most = i, weight
        if best >= 0:
            out[0] = self.addresses[best]
            return LISTED
        if self.prefix.family != family:
            return BY_KERNEL
        draw_from(&self.prefix, self.prefix_bits, draw, out)
        return DRAWN

    # For the doctor and tests.

    def address_for(self, int family, uint64_t draw):
        """The selected address as text; None: the kernel selects it."""
        cdef Address address
        if self.select(family, draw, &address) == BY_KERNEL:
            return None
        return str(ipaddress.ip_address((<char *>address.bytes)[:4 if family == 4 else 16]))

    def may_reach(self, int family):
        """Whether it may connect to addresses of this family."""
        return bool(self.serves(family))

    def apply(self, int fd, int family, uint64_t draw):
        """Prepares this socket. Raises OSError."""
        cdef Socket s
        memset(&s, 0, sizeof(s))
        s.fd = fd
        failed = self.prepare(&s, family, draw)
        if failed:
            raise OSError(failed, "")


cdef uint64_t random_draw() noexcept:
    cdef uint64_t draw = 0
    linux.getrandom(&draw, sizeof(draw), linux.GRND_NONBLOCK)
    return draw


cdef int set_address(Address *out, address) except -1:
    cdef bytes packed = address.packed
    out.family = <uint8_t>address.version
    memcpy(out.bytes, <const char *>packed, len(packed))
    return 0


cdef bint set_number(int fd, int level, int name, int value) noexcept:
    return linux.setsockopt(fd, level, name, &value, sizeof(value)) == 0


cdef int bind_address(int fd, const Address *address, bint anywhere) noexcept:
    """`anywhere`: it need not be an address of this host. 0, or an errno."""
    cdef sockaddr_storage name
    cdef socklen_t n = to_sockaddr(address, &name)
    set_number(fd, linux.IPPROTO_IP, linux.IP_BIND_ADDRESS_NO_PORT, 1)
    if anywhere and address.family == 4:
        set_number(fd, linux.IPPROTO_IP, linux.IP_FREEBIND, 1)
    elif anywhere:
        set_number(fd, linux.IPPROTO_IPV6, linux.IPV6_FREEBIND, 1)
    return 0 if linux.bind(fd, <const sockaddr *>&name, n) == 0 else errno


cdef void draw_from(const Address *base, int bits, uint64_t draw, Address *out) noexcept:
    """Fills the host part of a prefix."""
    cdef int i, size = 4 if base.family == 4 else 16
    cdef uint64_t word = 0
    cdef uint8_t keep
    out[0] = base[0]
    for i in range(size - 1, bits // 8 - 1, -1):
        if (size - 1 - i) % 8 == 0:
            word = mix(draw + <uint64_t>(size - i))
        keep = <uint8_t>(0xff00 >> (bits - 8 * i)) if 8 * i < bits else 0
        out.bytes[i] = (base.bytes[i] & keep) | (<uint8_t>word & ~keep)
        word >>= 8


cdef uint64_t digest(const Address *address) noexcept:
    cdef uint64_t halves[2]
    memset(halves, 0, sizeof(halves))
    memcpy(halves, address.bytes, 4 if address.family == 4 else 16)
    return mix(halves[0] ^ mix(halves[1] + address.family))


cdef uint64_t mix(uint64_t x) noexcept:
    """Spreads each bit over all others: the finalizer of splitmix64 (Steele, Lea and Flood,
    2014)."""
    x += <uint64_t>0x9e3779b97f4a7c15
    x = (x ^ (x >> 30)) * <uint64_t>0xbf58476d1ce4e5b9
    x = (x ^ (x >> 27)) * <uint64_t>0x94d049bb133111eb
    return x ^ (x >> 31)
