"""The header of the PROXY protocol, versions 1 and 2: bytes -> the client that it names
(haproxy's proxy-protocol.txt; R40, R50)."""

from libc.stdint cimport uint8_t, uint16_t

cdef enum:
    MOST_PROXY_HEADER = 4096    # nginx's NGX_PROXY_PROTOCOL_MAX_HEADER; HAProxy's buffer: 16 KiB
    LONGEST_BUILT = 107         # octets of a header that build_proxy_header writes
    MOST_KEPT = 4096            # octets that keep_tlvs writes: fewer than a header has

# TLVs of version 2 with a name in logs, in the order of proxy_header.TLVS.
cdef enum Tlv:
    TLV_ALPN
    TLV_AUTHORITY               # of the client's TLS: the server name
    TLV_UNIQUE_ID
    TLV_TLS_VERSION             # those of TLS: between the client and the sender
    TLV_TLS_CN                  # of a client certificate that the sender has verified
    TLV_TLS_CIPHER
    TLV_NETNS                   # network namespace at the sender
    TLV_AWS_VPCE                # id of the VPC endpoint that the client uses
    TLV_CUSTOM                  # first of 16: PP2_TYPE_MIN_CUSTOM to PP2_TYPE_MAX_CUSTOM
    N_TLVS = TLV_CUSTOM + 16

cdef struct ProxyHeader:
    uint8_t family              # 4, 6; 0: it names no client, the connection's own address counts
    uint8_t address[16]         # the client's, network order; IPv4 in the first four
    uint16_t port               # host order
    const char *tlvs            # those of version 2, in the bytes of the header; NULL: none
    uint16_t tlvs_len

# > 0: the header's length; 0: more is needed; or minus BAD_PROXY_HEADER. A mapped IPv4 address
# is IPv4. LOCAL, UNKNOWN, UNSPEC, AF_UNIX and datagrams name no client.
cdef int parse_proxy_header(ProxyHeader *out, const char *data, size_t n) noexcept nogil
# Writes to `out` the TLVs that have a name: number (Tlv), length, value, each of the first two
# in one octet. The first one of a kind counts. A value above 255 octets is left out. Returns the
# number of octets.
cdef size_t keep_tlvs(char *out, const ProxyHeader *header) noexcept nogil
# The value of the kept TLV; NULL: there is none.
cdef const char *find_kept(const char *records, size_t n, int tlv, size_t *length) noexcept nogil
cdef const char *name_of_tlv(int tlv) noexcept nogil
# Writes a header of version 1 or 2, without TLVs, that names the client and the address it
# connected to; family 0: it names no client. If their families differ, IPv4 is written as
# mapped IPv6. Returns its length.
cdef size_t build_proxy_header(char *out, int version, const ProxyHeader *client,
                               const ProxyHeader *listener) noexcept nogil
