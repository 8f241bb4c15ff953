# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The first bytes inside a tunnel: TLS, or another protocol by its look.

The client's bytes decide if it speaks first, else the origin's: servers of SSH, SMTP and others
do not wait. A guess is for logs, metrics and rules; only TLS is read further. Bytes that may yet
become one of the known openings are undecided.
"""

from libc.string cimport memchr, memcmp
from cutthrough.wire.clienthello cimport ClientHello, parse_client_hello

# By Protocol: the words in logs, rules and metrics.
PROTOCOLS = ("", "tls", "http", "http2", "ssh", "smtp", "ftp", "imap", "pop3", "postgresql",
             "mysql", "rdp", "vnc", "xmpp", "bittorrent", "unknown", "silent")
assert len(PROTOCOLS) == <int>N_PROTOCOLS

cdef enum:
    TLS_HANDSHAKE = 22
    MOST_BANNER = 512           # RFC 5321 section 4.5.3.1.5: the longest reply line

# A protocol's first bytes; `?` in the mask: any byte. No two rows of a table can match the
# same bytes, so it does not matter how many bytes are there when a row matches.
cdef struct Opening:
    const char *start
    const char *mask            # NULL: every byte counts
    size_t n
    Protocol protocol

cdef enum:
    N_OF_CLIENTS = 22
    N_OF_ORIGINS = 10

cdef Opening[N_OF_CLIENTS] of_clients = [
    Opening(b"SSH-", NULL, 4, SSH),                             # RFC 4253 section 4.2
    Opening(b"PRI * HTTP/2.0\r\n", NULL, 16, HTTP2),            # RFC 9113 section 3.4
    Opening(b"GET ", NULL, 4, HTTP), Opening(b"HEAD ", NULL, 5, HTTP),
    Opening(b"POST ", NULL, 5, HTTP), Opening(b"PUT ", NULL, 4, HTTP),
    Opening(b"PATCH ", NULL, 6, HTTP), Opening(b"DELETE ", NULL, 7, HTTP),
    Opening(b"OPTIONS ", NULL, 8, HTTP), Opening(b"CONNECT ", NULL, 8, HTTP),
    Opening(b"TRACE ", NULL, 6, HTTP), Opening(b"PROPFIND ", NULL, 9, HTTP),
    Opening(b"EHLO ", NULL, 5, SMTP), Opening(b"HELO ", NULL, 5, SMTP),    # RFC 5321
    Opening(b"<?xml ", NULL, 6, XMPP),                          # RFC 6120 section 4.2
    Opening(b"<stream:stream ", NULL, 15, XMPP),
    Opening(b"\x13BitTorrent protocol", NULL, 20, BITTORRENT),  # BEP 3
    # PostgreSQL's manual, "Message Formats": SSLRequest, GSSENCRequest, StartupMessage 3
    Opening(b"\0\0\0\x08\x04\xd2\x16\x2f", NULL, 8, POSTGRESQL),
    Opening(b"\0\0\0\x08\x04\xd2\x16\x30", NULL, 8, POSTGRESQL),
    Opening(b"\0\0??\0\x03\0\0", b"..??....", 8, POSTGRESQL),
    Opening(b"RFB ", NULL, 4, VNC),                             # RFC 6143 section 7.1.1
    Opening(b"\x03\0???\xe0", b"..???.", 6, RDP),               # MS-RDPBCGR 2.2.1.1, X.224 CR
]
cdef Opening[N_OF_ORIGINS] of_origins = [
    Opening(b"SSH-", NULL, 4, SSH),
    Opening(b"220 ", NULL, 4, SMTP), Opening(b"220-", NULL, 4, SMTP),       # or FTP: see below
    Opening(b"* OK", NULL, 4, IMAP), Opening(b"* PREAUTH", NULL, 9, IMAP),  # RFC 9051
    Opening(b"* BYE", NULL, 5, IMAP),
    Opening(b"+OK", NULL, 3, POP3),                             # RFC 1939
    Opening(b"RFB ", NULL, 4, VNC),
    Opening(b"HTTP/1.", NULL, 7, HTTP),
    Opening(b"??\0\0\x0a", b"??...", 5, MYSQL),                 # its manual, HandshakeV10
]


cdef Protocol read_client_opening(ClientHello *hello, const char *data,
                                  size_t n) noexcept nogil:
    cdef int got
    if n and data[0] == TLS_HANDSHAKE:
        got = parse_client_hello(hello, data, n)
        return TLS if got > 0 else UNDECIDED if got == 0 else UNKNOWN
    return look_up(of_clients, N_OF_CLIENTS, data, n)


cdef Protocol read_origin_opening(const char *data, size_t n) noexcept nogil:
    cdef Protocol found = look_up(of_origins, N_OF_ORIGINS, data, n)
    return read_banner(data, n) if found == SMTP else found


cdef Protocol look_up(const Opening *table, int rows, const char *data,
                      size_t n) noexcept nogil:
    cdef const Opening *row
    cdef bint undecided = False
    cdef size_t j, most
    cdef int i
    for i in range(rows):
        row = &table[i]
        most = min(n, row.n)
        j = 0
        while j < most and (data[j] == row.start[j] or (
                row.mask != NULL and row.mask[j] == c'?')):
            j += 1
        if j == row.n:
            return row.protocol
        undecided |= j == n
    return UNDECIDED if undecided else UNKNOWN


cdef Protocol read_banner(const char *data, size_t n) noexcept nogil:
    """SMTP and FTP begin alike. RFC 5321 section 4.2 and RFC 959 leave the text free, but a
    server of FTP names its protocol."""
    cdef size_t most = min(n, <size_t>MOST_BANNER)
    cdef const char *end = <const char *>memchr(data, c'\n', most)
    cdef const char *p = data
    if end == NULL:
        if n < MOST_BANNER:
            return UNDECIDED
        end = data + most
    while end - p >= 3:
        if memcmp(p, b"FTP", 3) == 0:
            return FTP
        p += 1
    return SMTP
