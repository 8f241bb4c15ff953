# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What kind of place an address is (R27).

The tables are the IANA special-purpose registries for IPv4 and IPv6 (RFC 6890 and its
updates): what is not globally reachable there is not public here. An IPv6 address that
carries an IPv4 one is as public as the one that it carries.
"""

import ipaddress

from libc.stdint cimport uint8_t
from libc.string cimport memcmp

# Not globally reachable, or not the origin of anything a client could want.
NOT_PUBLIC_V4 = (
    "0.0.0.0/8",            # "this network"; the kernel takes 0.0.0.0 for itself
    "10.0.0.0/8",
    "100.64.0.0/10",        # CGNAT; Alibaba's metadata service 100.100.100.200 too
    "127.0.0.0/8",
    "168.63.129.16/32",     # Azure's platform address: public by number only
    "169.254.0.0/16",       # link-local; cloud metadata 169.254.169.254
    "172.16.0.0/12",
    "192.0.0.0/24",         # IETF protocol assignments
    "192.0.2.0/24",
    "192.31.196.0/24",      # AS112
    "192.52.193.0/24",      # AMT
    "192.88.99.0/24",       # 6to4 relay anycast, deprecated
    "192.168.0.0/16",
    "192.175.48.0/24",      # AS112
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",          # multicast
    "240.0.0.0/4",          # reserved, broadcast
)

# IPv6 is public only within 2000::/3, and there not in these.
NOT_PUBLIC_V6 = (
    "2001::/23",            # IETF protocol assignments; Teredo is looked into before
    "2001:db8::/32",
    "2620:4f:8000::/48",    # AS112
    "3fff::/20",            # documentation
)

cdef struct Net:
    uint8_t data[16]
    uint8_t bits

cdef Net nets4[32]
cdef Net nets6[16]
cdef int n4 = 0, n6 = 0


cdef int fill(Net *nets, texts) except -1:
    cdef int i, j
    for i, text in enumerate(texts):
        network = ipaddress.ip_network(text)
        packed = network.network_address.packed
        for j in range(len(packed)):
            nets[i].data[j] = packed[j]
        nets[i].bits = network.prefixlen
    return len(texts)


n4 = fill(nets4, NOT_PUBLIC_V4)
n6 = fill(nets6, NOT_PUBLIC_V6)


cdef bint is_in(const uint8_t *data, const Net *net) noexcept nogil:
    cdef int whole = net.bits // 8
    cdef int rest = net.bits % 8
    if memcmp(data, net.data, whole) != 0:
        return False
    return rest == 0 or (data[whole] ^ net.data[whole]) >> (8 - rest) == 0


cdef bint is_public_v4(const uint8_t *data) noexcept nogil:
    cdef int i
    for i in range(n4):
        if is_in(data, &nets4[i]):
            return False
    return True


cdef bint is_public(int family, const uint8_t *data) noexcept nogil:
    cdef uint8_t turned[4]
    cdef int i
    if family == 4:
        return is_public_v4(data)
    # 64:ff9b::/96 (NAT64, RFC 6052): as public as the IPv4 inside
    if memcmp(data, b"\x00\x64\xff\x9b\0\0\0\0\0\0\0\0", 12) == 0:
        return is_public_v4(data + 12)
    # ::ffff:0:0/96, ::/96 (mapped, compatible) are outside 2000::/3: never public as such
    if data[0] >> 5 != 1:
        return False
    # 2002::/16 (6to4, RFC 3056): the router's IPv4 in bits 16 to 47
    if data[0] == 0x20 and data[1] == 0x02:
        return is_public_v4(data + 2)
    # 2001::/32 (Teredo, RFC 4380): server, and client with all bits turned
    if memcmp(data, b"\x20\x01\0\0", 4) == 0:
        for i in range(4):
            turned[i] = ~data[12 + i]
        return is_public_v4(data + 4) and is_public_v4(turned)
    # ...:[02]00:5efe:a.b.c.d (ISATAP, RFC 5214)
    if (data[8] & 0xfd) == 0 and data[9] == 0 and data[10] == 0x5e and data[11] == 0xfe:
        if not is_public_v4(data + 12):
            return False
    for i in range(n6):
        if is_in(data, &nets6[i]):
            return False
    return True


def is_public_address(text):
    """The same for an address in text. Raises ValueError."""
    address = ipaddress.ip_address(text)
    packed = address.packed
    return bool(is_public(address.version, packed))
