# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The header of the PROXY protocol, versions 1 and 2: bytes <-> the client that it names.

    version 1   PROXY TCP4 203.0.113.9 192.0.2.1 50412 3128 CR LF      107 bytes at most
    version 2   signature 12 | version, command | family, protocol | length 2 |
                addresses | TLVs: type, length 2, value

The parser keeps no state: if the header is incomplete, the next call starts at the first byte
again. That is cheap, because a sender writes the header at once. Bytes that cannot begin a header
are refused immediately. Of the TLVs the checksum is verified; those with a name here may be kept
(sections 2.2.1 to 2.2.8), and the others are skipped.
"""

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy, memset, strlen
from cutthrough.outcome cimport BAD_PROXY_HEADER
from cutthrough.wire.authority cimport put_number

cdef extern from "<arpa/inet.h>" nogil:
    int AF_INET, AF_INET6
    int inet_pton(int family, const char *text, void *address)
    const char *inet_ntop(int family, const void *address, char *text, uint32_t size)

cdef enum:
    BAD = -<int>BAD_PROXY_HEADER
    LONGEST_LINE = 107          # of version 1, its CRLF included
    LONGEST_ADDRESS = 45        # of IPv6 in text, a mapped one included
    SIGNATURE_BYTES = 12
    FIXED_BYTES = 16            # of version 2, before the addresses
    # of version 2
    CHECKSUM = 3                # PP2_TYPE_CRC32C
    TLV_HEAD_BYTES = 3
    LOCAL = 0                   # a connection of the sender's own: a health check
    PROXY = 1
    UNSPEC = 0
    INET = 1
    INET6 = 2
    UNIX = 3
    STREAM = 1
    DATAGRAM = 2
    # Types of TLVs (section 2.2)
    TYPE_ALPN = 0x01
    TYPE_AUTHORITY = 0x02
    TYPE_UNIQUE_ID = 0x05
    TYPE_SSL = 0x20             # client 1, verify 4, TLVs of its own
    TYPE_SSL_VERSION = 0x21
    TYPE_SSL_CN = 0x22
    TYPE_SSL_CIPHER = 0x23
    TYPE_NETNS = 0x30
    # AWS's Network Load Balancer, "Proxy protocol": subtype 1, value
    TYPE_AWS = 0xea
    AWS_VPCE = 1
    # For applications' own use; AWS's is one of them, Google's is 0xe0, Azure's 0xee
    MIN_CUSTOM = 0xe0
    MAX_CUSTOM = 0xef
    SSL_HEAD_BYTES = 5
    HAS_CERTIFICATE = 6
    MOST_VALUE = 255

cdef enum Level:
    AT_TOP
    IN_SSL                      # in the value of TYPE_SSL
    IN_VERIFIED                 # the same; the client's certificate is verified

# By Tlv: the names in logs.
TLVS = ("alpn", "authority", "unique_id", "tls_version", "tls_cn", "tls_cipher", "netns",
        "aws_vpce", *[f"type_{kind:02x}" for kind in range(<int>MIN_CUSTOM, <int>MAX_CUSTOM + 1)])
assert len(TLVS) == <int>N_TLVS

# The C column points into these bytes objects, which live as long as the module.
_words = [word.encode() for word in TLVS]
cdef const char *tlv_names[N_TLVS]
cdef int number
for number in range(<int>N_TLVS):
    tlv_names[number] = _words[number]

cdef const char *TEXT = b"PROXY "
cdef const char *SIGNATURE = b"\r\n\r\n\0\r\nQUIT\n"
cdef const char *MAPPED = b"\0\0\0\0\0\0\0\0\0\0\xff\xff"
# Bytes of both addresses and ports, by family
cdef size_t[4] address_bytes = [0, 12, 36, 216]
cdef uint32_t[256] crc_table


cdef void fill_crc_table() noexcept:
    """CRC32C, reflected (RFC 4960 appendix B)."""
    cdef uint32_t i, crc
    cdef int _bit
    for i in range(256):
        crc = i
        for _bit in range(8):
            crc = crc >> 1 ^ (<uint32_t>0x82f63b78 if crc & 1 else 0)
        crc_table[i] = crc


fill_crc_table()


cdef int parse_proxy_header(ProxyHeader *out, const char *data, size_t n) noexcept nogil:
    memset(out, 0, sizeof(ProxyHeader))
    if n == 0:
        return 0
    if data[0] == TEXT[0]:
        return parse_line(out, data, n)
    return parse_binary(out, data, n)


# --- version 1 ---------------------------------------------------------------------

cdef int parse_line(ProxyHeader *out, const char *data, size_t n) noexcept nogil:
    cdef const char *p = data + 6
    cdef const char *end
    cdef int length
    if memcmp(data, TEXT, min(n, <size_t>6)) != 0:
        return BAD
    length = find_line(data, n)
    if length <= 0:
        return length
    end = data + length - 2
    if end - p >= 7 and memcmp(p, b"UNKNOWN", 7) == 0:
        return length if p + 7 == end or p[7] == c' ' else BAD
    if end - p < 5 or (memcmp(p, b"TCP4 ", 5) != 0 and memcmp(p, b"TCP6 ", 5) != 0):
        return BAD
    if not read_line_addresses(out, 4 if p[3] == c'4' else 6, p + 5, end):
        return BAD
    return length


cdef int find_line(const char *data, size_t n) noexcept nogil:
    """The line's length with CRLF; 0: more is needed. CR or LF alone is refused."""
    cdef size_t i
    for i in range(min(n, <size_t>LONGEST_LINE)):
        if data[i] == c'\n':
            return <int>i + 1 if data[i - 1] == c'\r' else BAD
        if i and data[i - 1] == c'\r':
            return BAD
    return BAD if n >= LONGEST_LINE else 0


cdef bint read_line_addresses(ProxyHeader *out, int family, const char *p,
                              const char *end) noexcept nogil:
    """Source, destination, and their ports, one space between each."""
    cdef uint8_t destination[16]
    cdef uint16_t port
    p = read_address(out.address, family, p, end)
    if p != NULL:
        p = read_address(destination, family, p, end)
    if p != NULL:
        p = read_port(&out.port, c' ', p, end + 1)
    # Behind the last port stands the CR
    if p == NULL or read_port(&port, c'\r', p, end + 1) != end + 1:
        return False
    out.family = <uint8_t>family
    unmap(out)
    return True


cdef const char *read_address(uint8_t *out, int family, const char *p,
                              const char *end) noexcept nogil:
    """Returns what follows the address and a space; NULL: invalid. inet_pton refuses a
    leading zero in IPv4."""
    cdef char text[LONGEST_ADDRESS + 1]
    cdef const char *space = <const char *>memchr(p, c' ', end - p)
    cdef size_t n
    if space == NULL or space - p > LONGEST_ADDRESS:
        return NULL
    n = space - p
    memcpy(text, p, n)
    text[n] = 0
    if strlen(text) != n or inet_pton(AF_INET if family == 4 else AF_INET6, text, out) != 1:
        return NULL
    return space + 1


cdef const char *read_port(uint16_t *out, char stop, const char *p,
                           const char *end) noexcept nogil:
    """The same for a port: decimal digits without a leading zero, and `stop`."""
    cdef uint32_t port = 0
    cdef const char *begin = p
    while p < end and c'0' <= p[0] <= c'9' and p - begin < 5:
        port = port * 10 + <uint32_t>(p[0] - c'0')
        p += 1
    if p == begin or p == end or p[0] != stop or port > 65535 or (
            begin[0] == c'0' and p - begin > 1):
        return NULL
    out[0] = <uint16_t>port
    return p + 1


# --- version 2 ---------------------------------------------------------------------

cdef int parse_binary(ProxyHeader *out, const char *data, size_t n) noexcept nogil:
    cdef const uint8_t *p = <const uint8_t *>data
    cdef size_t total
    cdef int command, family, protocol
    if memcmp(data, SIGNATURE, min(n, <size_t>SIGNATURE_BYTES)) != 0:
        return BAD
    if n <= 12:
        return 0
    command = p[12] & 15
    if p[12] >> 4 != 2 or command > PROXY:
        return BAD
    if n < FIXED_BYTES:
        return 0
    family = p[13] >> 4
    protocol = p[13] & 15
    total = FIXED_BYTES + (<size_t>p[14] << 8 | p[15])
    if total > MOST_PROXY_HEADER:
        return BAD
    if command == PROXY and (family > UNIX or protocol > DATAGRAM or (
            protocol != UNSPEC and total - FIXED_BYTES < address_bytes[family])):
        return BAD
    if n < total:
        return 0
    # LOCAL ignores the family, so the place of the TLVs is not known; nor is it with UNSPEC
    if command == LOCAL or family == UNSPEC or protocol == UNSPEC:
        return <int>total
    if not are_tlvs_valid(p, FIXED_BYTES + address_bytes[family], total):
        return BAD
    if protocol == STREAM and family != UNIX:
        take_addresses(out, family, p + FIXED_BYTES)
        out.tlvs_len = <uint16_t>(total - FIXED_BYTES - address_bytes[family])
        if out.tlvs_len:
            out.tlvs = data + FIXED_BYTES + address_bytes[family]
    return <int>total


cdef void take_addresses(ProxyHeader *out, int family, const uint8_t *p) noexcept nogil:
    cdef size_t n = 4 if family == INET else 16
    memcpy(out.address, p, n)
    p += 2 * n                          # behind the destination's
    out.port = <uint16_t>(p[0] << 8 | p[1])
    out.family = 4 if family == INET else 6
    unmap(out)


cdef bint are_tlvs_valid(const uint8_t *p, size_t at, size_t total) noexcept nogil:
    cdef size_t n, checksum = 0
    while at < total:
        if total - at < TLV_HEAD_BYTES:
            return False
        n = <size_t>p[at + 1] << 8 | p[at + 2]
        if total - at - TLV_HEAD_BYTES < n:
            return False
        if p[at] == CHECKSUM:
            if n != 4 or checksum:
                return False
            checksum = at + TLV_HEAD_BYTES
        at += TLV_HEAD_BYTES + n
    return checksum == 0 or is_checksum_right(p, checksum, total)


cdef bint is_checksum_right(const uint8_t *p, size_t at, size_t total) noexcept nogil:
    """The checksum is that of the whole header with its own four bytes zero."""
    cdef uint32_t crc = 0xffffffff
    cdef size_t i
    for i in range(total):
        crc = crc >> 8 ^ crc_table[(crc ^ (0 if at <= i < at + 4 else p[i])) & 255]
    crc = ~crc
    return (<uint32_t>p[at] << 24 | <uint32_t>p[at + 1] << 16 | <uint32_t>p[at + 2] << 8
            | p[at + 3]) == crc


cdef void unmap(ProxyHeader *out) noexcept nogil:
    """A mapped IPv4 address becomes IPv4, because rules and limits must see one client."""
    if out.family == 6 and memcmp(out.address, MAPPED, 12) == 0:
        memcpy(out.address, out.address + 12, 4)
        memset(out.address + 4, 0, 12)
        out.family = 4


# --- the TLVs that are kept --------------------------------------------------------

cdef size_t keep_tlvs(char *out, const ProxyHeader *header) noexcept nogil:
    return keep_each(out, 0, <const uint8_t *>header.tlvs, header.tlvs_len, AT_TOP)


cdef size_t keep_each(char *out, size_t size, const uint8_t *p, size_t n,
                      Level level) noexcept nogil:
    """Keeps those of the `n` octets, behind `size` octets of `out`. Returns the new size."""
    cdef size_t length
    cdef int kind
    while n >= TLV_HEAD_BYTES:
        kind = p[0]
        length = <size_t>p[1] << 8 | p[2]
        p += TLV_HEAD_BYTES
        n -= TLV_HEAD_BYTES
        if n < length:                      # within TYPE_SSL, whose value nothing has checked
            return size
        if level == AT_TOP and kind == TYPE_SSL and length >= SSL_HEAD_BYTES:
            size = keep_each(out, size, p + SSL_HEAD_BYTES, length - SSL_HEAD_BYTES,
                             IN_VERIFIED if is_verified(p) else IN_SSL)
        elif level == AT_TOP and kind == TYPE_AWS and length and p[0] == AWS_VPCE:
            size = keep(out, size, TLV_AWS_VPCE, p + 1, length - 1)
        else:
            size = keep(out, size, tlv_of(kind, level), p, length)
        p += length
        n -= length
    return size


cdef bint is_verified(const uint8_t *p) noexcept nogil:
    """Has the sender verified a client certificate? PP2_CLIENT_CERT_CONN or _SESS, verify 0."""
    return p[0] & HAS_CERTIFICATE and not (p[1] | p[2] | p[3] | p[4])


cdef int tlv_of(int kind, Level level) noexcept nogil:
    """Tlv, or N_TLVS."""
    if level == AT_TOP:
        return (TLV_ALPN if kind == TYPE_ALPN else
                TLV_AUTHORITY if kind == TYPE_AUTHORITY else
                TLV_UNIQUE_ID if kind == TYPE_UNIQUE_ID else
                TLV_NETNS if kind == TYPE_NETNS else
                TLV_CUSTOM + kind - MIN_CUSTOM if MIN_CUSTOM <= kind <= MAX_CUSTOM else N_TLVS)
    return (TLV_TLS_VERSION if kind == TYPE_SSL_VERSION else
            TLV_TLS_CIPHER if kind == TYPE_SSL_CIPHER else
            TLV_TLS_CN if kind == TYPE_SSL_CN and level == IN_VERIFIED else N_TLVS)


cdef size_t keep(char *out, size_t size, int tlv, const uint8_t *value,
                 size_t n) noexcept nogil:
    cdef size_t length
    if tlv == N_TLVS or n == 0 or n > MOST_VALUE or (
            find_kept(out, size, tlv, &length) != NULL):
        return size
    out[size] = <char>tlv
    out[size + 1] = <char>n
    memcpy(out + size + 2, value, n)
    return size + 2 + n


cdef const char *find_kept(const char *records, size_t n, int tlv, size_t *length) noexcept nogil:
    cdef size_t at = 0
    while at + 2 <= n:
        length[0] = <uint8_t>records[at + 1]
        if at + 2 + length[0] > n:          # never of keep_tlvs; a record may say anything
            return NULL
        if records[at] == tlv:
            return records + at + 2
        at += 2 + length[0]
    return NULL


def pack_tlvs(values):
    """Values by name -> the octets that keep_tlvs writes. Raises ValueError."""
    return b"".join([bytes((TLVS.index(name), len(value))) + value
                     for name, value in values.items()])


cdef const char *name_of_tlv(int tlv) noexcept nogil:
    return tlv_names[tlv]


# --- a header of our own -----------------------------------------------------------

cdef size_t build_proxy_header(char *out, int version, const ProxyHeader *client,
                               const ProxyHeader *listener) noexcept nogil:
    cdef int family = 4 if client.family == 4 and listener.family == 4 else 6
    if client.family == 0 and version == 1:
        memcpy(out, b"PROXY UNKNOWN\r\n", 15)
        return 15
    if client.family == 0:
        memcpy(out, SIGNATURE, SIGNATURE_BYTES)
        memcpy(out + SIGNATURE_BYTES, b"\x20\0\0\0", 4)         # LOCAL
        return FIXED_BYTES
    if version == 1:
        return build_line(out, family, client, listener)
    return build_binary(out, family, client, listener)


cdef size_t build_line(char *out, int family, const ProxyHeader *client,
                       const ProxyHeader *listener) noexcept nogil:
    cdef char *o = out
    memcpy(o, b"PROXY TCP4 " if family == 4 else b"PROXY TCP6 ", 11)
    o = put_text_of(o + 11, family, client)
    o = put_text_of(o, family, listener)
    o += put_number(o, client.port)
    o[0] = c' '
    o += 1 + put_number(o + 1, listener.port)
    memcpy(o, b"\r\n", 2)
    return o + 2 - out


cdef char *put_text_of(char *o, int family, const ProxyHeader *end) noexcept nogil:
    """The address and a space."""
    cdef char text[LONGEST_ADDRESS + 1]
    cdef uint8_t address[16]
    put_address(address, family, end)
    inet_ntop(AF_INET if family == 4 else AF_INET6, address, text, sizeof(text))
    memcpy(o, text, strlen(text))
    o += strlen(text)
    o[0] = c' '
    return o + 1


cdef size_t build_binary(char *out, int family, const ProxyHeader *client,
                         const ProxyHeader *listener) noexcept nogil:
    cdef size_t size = 4 if family == 4 else 16
    cdef uint8_t *p = <uint8_t *>out + FIXED_BYTES
    memcpy(out, SIGNATURE, SIGNATURE_BYTES)
    out[12] = 0x20 | PROXY
    out[13] = <char>((INET if family == 4 else INET6) << 4 | STREAM)
    out[14] = 0
    out[15] = <char>(2 * size + 4)
    put_address(p, family, client)
    put_address(p + size, family, listener)
    p += 2 * size
    p[0] = <uint8_t>(client.port >> 8)
    p[1] = <uint8_t>(client.port & 255)
    p[2] = <uint8_t>(listener.port >> 8)
    p[3] = <uint8_t>(listener.port & 255)
    return FIXED_BYTES + 2 * size + 4


cdef void put_address(uint8_t *out, int family, const ProxyHeader *end) noexcept nogil:
    if family == 6 and end.family == 4:
        memcpy(out, MAPPED, 12)
        memcpy(out + 12, end.address, 4)
    else:
        memcpy(out, end.address, 4 if family == 4 else 16)
