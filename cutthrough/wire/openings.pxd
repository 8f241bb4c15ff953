"""The first bytes inside a tunnel: TLS, or another protocol by its look."""

from cutthrough.wire.clienthello cimport ClientHello

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

# A Protocol, by the first bytes of the client; TLS: `hello` is filled in.
cdef Protocol read_client_opening(ClientHello *hello, const char *data, size_t n) noexcept nogil
# The same by those of the origin, if it speaks first.
cdef Protocol read_origin_opening(const char *data, size_t n) noexcept nogil
