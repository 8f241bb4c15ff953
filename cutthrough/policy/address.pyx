# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The class of an address: public, loopback, cloud metadata and others (R27).

The tables hold every row of the IANA special-purpose address registries for IPv4 and IPv6
(RFC 6890, RFC 8190) as of October 2025, and other addresses that are no origin for a client:
multicast, clouds' metadata services, IPv6 outside global unicast. Rows that the registry
calls globally reachable are included, because anycast of PCP, TURN, AMT and AS112 is
infrastructure of the local network, not a destination. If an IPv6 address carries an IPv4
address, it is as public as that address.
"""

import ipaddress

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp

# The narrowest network that contains an address gives its class.
SPECIAL_V4 = (
    ("0.0.0.0/8", "this-network"),          # RFC 791; to the kernel 0.0.0.0 is this host
    ("0.0.0.0/32", "unspecified"),          # RFC 1122
    ("10.0.0.0/8", "private-use"),          # RFC 1918
    ("100.64.0.0/10", "shared"),            # RFC 6598: CGNAT
    ("100.100.100.200/32", "cloud-metadata"),   # Alibaba
    ("127.0.0.0/8", "loopback"),            # RFC 1122
    ("168.63.129.16/32", "cloud-metadata"),     # Azure's platform; it looks public
    ("169.254.0.0/16", "link-local"),       # RFC 3927
    ("169.254.169.254/32", "cloud-metadata"),   # AWS, GCP, Azure, and most others
    ("169.254.170.2/32", "cloud-metadata"),     # AWS, of a container (ECS)
    ("169.254.170.23/32", "cloud-metadata"),    # AWS, of a pod (EKS)
    ("172.16.0.0/12", "private-use"),       # RFC 1918
    ("192.0.0.0/24", "protocol-assignments"),   # RFC 6890
    ("192.0.0.0/29", "service-continuity"),     # RFC 7335: DS-Lite, 464XLAT
    ("192.0.0.8/32", "dummy"),              # RFC 7600
    ("192.0.0.9/32", "pcp-anycast"),        # RFC 7723
    ("192.0.0.10/32", "turn-anycast"),      # RFC 8155
    ("192.0.0.170/32", "nat64-discovery"),  # RFC 8880
    ("192.0.0.171/32", "nat64-discovery"),
    ("192.0.0.192/32", "cloud-metadata"),   # Oracle, older
    ("192.0.2.0/24", "documentation"),      # RFC 5737
    ("192.31.196.0/24", "as112"),           # RFC 7535
    ("192.52.193.0/24", "amt"),             # RFC 7450
    ("192.88.99.0/24", "6to4-relay"),       # RFC 7526: deprecated
    ("192.88.99.2/32", "6a44-relay"),       # RFC 6751
    ("192.168.0.0/16", "private-use"),      # RFC 1918
    ("192.175.48.0/24", "as112"),           # RFC 7534
    ("198.18.0.0/15", "benchmarking"),      # RFC 2544
    ("198.51.100.0/24", "documentation"),   # RFC 5737
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),           # RFC 1112
    ("240.0.0.0/4", "reserved"),            # RFC 1112
    ("255.255.255.255/32", "broadcast"),    # RFC 919
)

# Networks that carry IPv4 addresses are not here: find_carrier looks for them first.
SPECIAL_V6 = (
    ("::/0", "reserved"),                   # outside 2000::/3 (RFC 4291)
    ("2000::/3", "public"),
    ("::/128", "unspecified"),              # RFC 4291
    ("::1/128", "loopback"),                # RFC 4291
    ("64:ff9b:1::/48", "nat64-local"),      # RFC 8215: the place of the IPv4 is unknown
    ("100::/64", "discard-only"),           # RFC 6666
    ("100:0:0:1::/64", "dummy"),            # RFC 9780
    ("2001::/23", "protocol-assignments"),  # RFC 2928
    ("2001:1::1/128", "pcp-anycast"),       # RFC 7723
    ("2001:1::2/128", "turn-anycast"),      # RFC 8155
    ("2001:1::3/128", "srp-anycast"),       # RFC 9665
    ("2001:2::/48", "benchmarking"),        # RFC 5180
    ("2001:3::/32", "amt"),                 # RFC 7450
    ("2001:4:112::/48", "as112"),           # RFC 7535
    ("2001:10::/28", "orchid"),             # RFC 4843: deprecated
    ("2001:20::/28", "orchid"),             # RFC 7343
    ("2001:30::/28", "drone-id"),           # RFC 9374
    ("2001:db8::/32", "documentation"),     # RFC 3849
    ("2620:4f:8000::/48", "as112"),         # RFC 7534
    ("3fff::/20", "documentation"),         # RFC 9637
    ("5f00::/16", "segment-routing"),       # RFC 9602
    ("fc00::/7", "unique-local"),           # RFC 4193
    ("fd00:ec2::23/128", "cloud-metadata"),     # AWS, of a pod (EKS)
    ("fd00:ec2::254/128", "cloud-metadata"),    # AWS
    ("fd20:ce::254/128", "cloud-metadata"),     # GCP
    ("fe80::/10", "link-local"),            # RFC 4291
    ("fec0::/10", "site-local"),            # RFC 3879: deprecated
    ("ff00::/8", "multicast"),              # RFC 4291
)

# The ways in which an IPv6 address can carry an IPv4 address.
CARRIERS = ("ipv4-mapped", "ipv4-compatible", "ipv4-translated", "nat64", "6to4", "teredo",
            "isatap")

cdef list _names = ["public", *CARRIERS]
for _, name in SPECIAL_V4 + SPECIAL_V6:
    if name not in _names:
        _names.append(name)

cdef enum:
    MAPPED = 1
    COMPATIBLE
    TRANSLATED
    NAT64
    SIX_TO_FOUR
    TEREDO
    ISATAP

cdef struct Net4:
    uint32_t first
    uint32_t mask
    int number

cdef struct Net6:
    uint8_t data[16]
    int bits
    int number

cdef Net4 nets4[64]
cdef Net6 nets6[64]
cdef int n4 = 0, n6 = 0


cdef int fill() except -1:
    global n4, n6
    cdef int i
    cdef bytes packed
    # Narrowest first, because the first hit must be the narrowest network.
    for text, name in sorted(SPECIAL_V4, key=prefix_of, reverse=True):
        network = ipaddress.ip_network(text)
        nets4[n4] = Net4(int(network.network_address), int(network.netmask),
                         _names.index(name))
        n4 += 1
    for text, name in sorted(SPECIAL_V6, key=prefix_of, reverse=True):
        network = ipaddress.ip_network(text)
        packed = network.network_address.packed
        for i in range(16):
            nets6[n6].data[i] = packed[i]
        nets6[n6].bits = network.prefixlen
        nets6[n6].number = _names.index(name)
        n6 += 1
    return 0


def prefix_of(row):
    return ipaddress.ip_network(row[0]).prefixlen


assert max(len(SPECIAL_V4), len(SPECIAL_V6)) <= 64
fill()


cdef inline bint is_in(const uint8_t *data, const Net6 *net) noexcept nogil:
    cdef int whole = net.bits // 8
    cdef int rest = net.bits % 8
    if memcmp(data, net.data, whole) != 0:
        return False
    return rest == 0 or (data[whole] ^ net.data[whole]) >> (8 - rest) == 0


cdef int classify_v4(const uint8_t *data) noexcept nogil:
    cdef uint32_t address = (<uint32_t>data[0] << 24 | <uint32_t>data[1] << 16
                             | <uint32_t>data[2] << 8 | data[3])
    cdef int i
    for i in range(n4):
        if address & nets4[i].mask == nets4[i].first:
            return nets4[i].number
    return PUBLIC


cdef inline void add(Carried *carried, uint8_t a, uint8_t b, uint8_t c, uint8_t d) noexcept nogil:
    carried.v4[carried.n][0] = a
    carried.v4[carried.n][1] = b
    carried.v4[carried.n][2] = c
    carried.v4[carried.n][3] = d
    carried.n += 1


cdef int find_carrier(const uint8_t *data, Carried *carried) noexcept nogil:
    """Returns the carrier that the prefix shows, and its IPv4 addresses; 0: there is none."""
    carried.n = 0
    if memcmp(data, b"\0\0\0\0\0\0\0\0", 8) == 0:
        if memcmp(data + 8, b"\0\0\xff\xff", 4) == 0:       # ::ffff:0:0/96, RFC 4291
            add(carried, data[12], data[13], data[14], data[15])
            return MAPPED
        if memcmp(data + 8, b"\xff\xff\0\0", 4) == 0:       # ::ffff:0:0:0/96, RFC 2765
            add(carried, data[12], data[13], data[14], data[15])
            return TRANSLATED
        # ::/96, RFC 4291; :: and ::1 are excluded
        if memcmp(data + 8, b"\0\0\0\0", 4) == 0 and (
                data[12] or data[13] or data[14] or data[15] > 1):
            add(carried, data[12], data[13], data[14], data[15])
            return COMPATIBLE
    # 64:ff9b::/96 (NAT64, RFC 6052)
    elif memcmp(data, b"\x00\x64\xff\x9b\0\0\0\0\0\0\0\0", 12) == 0:
        add(carried, data[12], data[13], data[14], data[15])
        return NAT64
    # 2002::/16 (6to4, RFC 3056): the router's IPv4 in bits 16 to 47
    elif data[0] == 0x20 and data[1] == 0x02:
        add(carried, data[2], data[3], data[4], data[5])
        return SIX_TO_FOUR
    # 2001::/32 (Teredo, RFC 4380): the client's with all bits inverted, and the server's
    elif memcmp(data, b"\x20\x01\0\0", 4) == 0:
        add(carried, ~data[12], ~data[13], ~data[14], ~data[15])
        add(carried, data[4], data[5], data[6], data[7])
        return TEREDO
    return 0


cdef inline bint is_isatap(const uint8_t *data) noexcept nogil:
    """...:[02]00:5efe:a.b.c.d (RFC 5214), within any prefix"""
    return (data[8] & 0xfd) == 0 and data[9] == 0 and data[10] == 0x5e and data[11] == 0xfe


cdef int find_carried(const uint8_t *data, Carried *carried) noexcept nogil:
    if find_carrier(data, carried) == MAPPED:
        carried.n = 0
    elif is_isatap(data):
        add(carried, data[12], data[13], data[14], data[15])
    elif memcmp(data, b"\x00\x64\xff\x9b\x00\x01", 6) == 0:
        # 64:ff9b:1::/48 (RFC 8215): an operator's prefix in it has 48, 56, 64 or 96 bits. The
        # IPv4 address follows the prefix and skips byte 8 (RFC 6052 section 2.2). If a reading
        # begins with 0, it is not a destination, because it sees the zeros of another length.
        if data[6]:
            add(carried, data[6], data[7], data[9], data[10])
        if data[7]:
            add(carried, data[7], data[9], data[10], data[11])
        if data[9]:
            add(carried, data[9], data[10], data[11], data[12])
        if data[12]:
            add(carried, data[12], data[13], data[14], data[15])
    return carried.n


cdef int classify(int family, const uint8_t *data) noexcept nogil:
    cdef Carried carried
    cdef int carrier, i, number = PUBLIC
    if family == 4:
        return classify_v4(data)
    carrier = find_carrier(data, &carried)
    for i in range(carried.n):
        number = classify_v4(carried.v4[i])
        if number:
            break
    # Carriers up to TRANSLATED are outside 2000::/3, and so never public. All others are as
    # public as the IPv4 address inside.
    if carrier and (number or carrier <= TRANSLATED):
        return carrier + CARRIED * number
    if not carrier:
        for i in range(n6):
            if is_in(data, &nets6[i]):
                number = nets6[i].number
                break
    if number == PUBLIC and is_isatap(data):
        number = classify_v4(data + 12)
        return ISATAP + CARRIED * number if number else PUBLIC
    return number


cdef bint is_public(int family, const uint8_t *data) noexcept nogil:
    return classify(family, data) == PUBLIC


def class_of(address):
    """Returns the class of an address, in text or packed: "public", "loopback" …

    For an IPv6 address that carries an IPv4 one it is "6to4:private-use", carrier and class,
    or the carrier alone if the inner address is public. Raises ValueError."""
    known = ipaddress.ip_address(address)
    packed = known.packed
    number = classify(known.version, packed)
    outer = _names[number % CARRIED]
    return f"{outer}:{_names[number // CARRIED]}" if number >= CARRIED else outer
