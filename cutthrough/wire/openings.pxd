"""The first bytes inside a tunnel: TLS, or another protocol by its look."""

from libc.stdint cimport uint8_t, uint16_t
from cutthrough.wire.clienthello cimport ClientHello
from cutthrough.wire.fingerprints cimport JA3_BYTES, JA4_BYTES

cdef enum:
    MOST_ALPN = 100         # bytes of it that are kept

# The names are in openings.PROTOCOLS, in this order.
cdef enum Protocol:
    UNDECIDED = 0           # more bytes are needed
    TLS
    HTTP
    HTTP2                   # without TLS, by prior knowledge
    SSH
    SMTP
    FTP
    IMAP
    POP3
    POSTGRESQL
    MYSQL
    RDP
    VNC
    XMPP
    BITTORRENT
    UNKNOWN                 # none of these, or a ClientHello that breaks RFC 8446
    SILENT                  # no byte came; no parser returns it
    N_PROTOCOLS

# The fingerprints that are wanted of a ClientHello, as bits.
cdef enum Fingerprint:
    WITH_JA4 = 1
    WITH_JA3 = 2

# What is kept of a tunnel's first bytes. Behind it stand the server name and the protocols of
# ALPN, with commas between.
cdef struct Opening:
    uint8_t protocol        # Protocol; if it is not TLS, all else is 0
    uint8_t inside          # Protocol of the bytes inside TLS; UNDECIDED: not opened, or requests
    uint8_t name_kind       # ServerName
    uint8_t offers_ech
    uint8_t name_len
    uint8_t alpn_len
    uint16_t version        # the highest that is offered
    char ja4[JA4_BYTES + 1]     # NUL-terminated; "": it was not wanted
    char ja3[JA3_BYTES + 1]     # the same

# A Protocol, by the first bytes of the client; TLS: `hello` is filled in.
cdef Protocol read_client_opening(ClientHello *hello, const char *data, size_t n) noexcept nogil
# The same by those of the origin, if it speaks first.
cdef Protocol read_origin_opening(const char *data, size_t n) noexcept nogil
# The same by the client's first bytes behind a handshake with the proxy. HTTP: what an origin
# could read as a request of HTTP/1 or HTTP/2, well formed or not.
cdef Protocol read_inner_opening(const char *data, size_t n) noexcept nogil
# The protocol's word: if TLS is open, of the bytes inside.
cdef const char *protocol_text(const Opening *opening) noexcept nogil
# Makes an Opening with malloc; `hello` is read if the protocol is TLS. `wanted`: bits of
# Fingerprint. Raises MemoryError.
cdef Opening *make_opening(Protocol protocol, const ClientHello *hello,
                           int wanted) except NULL
cdef Opening *copy_opening(const Opening *opening) except NULL
# The same from its parts, which another worker made, and those parts as a tuple.
cdef Opening *opening_of(tuple parts) except NULL
cdef tuple parts_of(const Opening *opening)


cdef inline const char *server_name(const Opening *opening) noexcept nogil:
    return <const char *>(opening + 1)


cdef inline const char *alpn_of(const Opening *opening) noexcept nogil:
    return <const char *>(opening + 1) + opening.name_len
