"""The header of the PROXY protocol, versions 1 and 2: bytes -> the client that it names
(haproxy's proxy-protocol.txt; R40, R50)."""

from libc.stdint cimport uint8_t, uint16_t

cdef enum:
    MOST_PROXY_HEADER = 4096    # nginx's NGX_PROXY_PROTOCOL_MAX_HEADER; HAProxy's buffer: 16 KiB
    LONGEST_BUILT = 107         # octets of a header that build_proxy_header writes

cdef struct ProxyHeader:
    uint8_t family              # 4, 6; 0: it names no client, the connection's own address counts
    uint8_t address[16]         # the client's, network order; IPv4 in the first four
    uint16_t port               # host order

# > 0: the header's length; 0: more is needed; or minus BAD_PROXY_HEADER. A mapped IPv4 address
# is IPv4. LOCAL, UNKNOWN, UNSPEC, AF_UNIX and datagrams name no client.
cdef int parse_proxy_header(ProxyHeader *out, const char *data, size_t n) noexcept nogil
# Writes a header of version 1 or 2, without TLVs, that names the client and the address it
# connected to; family 0: it names no client. If their families differ, IPv4 is written as
# mapped IPv6. Returns its length.
cdef size_t build_proxy_header(char *out, int version, const ProxyHeader *client,
                               const ProxyHeader *listener) noexcept nogil
