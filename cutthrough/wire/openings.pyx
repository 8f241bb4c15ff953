# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The first bytes inside a tunnel: TLS, or another protocol by its look.

The client's bytes decide if it speaks first, else the origin's, because servers of SSH, SMTP and
others do not wait. A guess is for logs, metrics and rules; only TLS is read further. Bytes are
undecided if they may yet become one of the known openings.
"""

from libc.stdint cimport uint8_t
from libc.stdlib cimport calloc, malloc
from libc.string cimport memchr, memcmp, memcpy
from cutthrough.wire.chars cimport CC_TOKEN, equals_lower, is_class
from cutthrough.wire.clienthello cimport ClientHello, parse_client_hello
from cutthrough.wire.fingerprints cimport write_ja3, write_ja4

# By Protocol: the words in logs, rules and metrics.
PROTOCOLS = ("", "tls", "http", "http2", "ssh", "smtp", "ftp", "imap", "pop3", "postgresql",
             "mysql", "rdp", "vnc", "xmpp", "bittorrent", "unknown", "silent")
assert len(PROTOCOLS) == <int>N_PROTOCOLS

# The C column points into these bytes objects, which live as long as the module.
_words = [word.encode() for word in PROTOCOLS]
cdef const char *words[N_PROTOCOLS]
cdef int number
for number in range(<int>N_PROTOCOLS):
    words[number] = _words[number]

cdef enum:
    TLS_HANDSHAKE = 22
    MOST_LINE = 4096            # of a line that may be a request's
    MOST_BANNER = 512           # RFC 5321 section 4.5.3.1.5: the longest reply line

# A protocol's first bytes; `?` in the mask: any byte. No two rows of a table can match the
# same bytes, so it does not matter how many bytes are there when a row matches.
cdef struct Pattern:
    const char *start
    const char *mask            # NULL: every byte counts
    size_t n
    Protocol protocol

cdef enum:
    N_OF_CLIENTS = 22
    N_OF_ORIGINS = 10

cdef Pattern[N_OF_CLIENTS] of_clients = [
    Pattern(b"SSH-", NULL, 4, SSH),                             # RFC 4253 section 4.2
    Pattern(b"PRI * HTTP/2.0\r\n", NULL, 16, HTTP2),            # RFC 9113 section 3.4
    Pattern(b"GET ", NULL, 4, HTTP), Pattern(b"HEAD ", NULL, 5, HTTP),
    Pattern(b"POST ", NULL, 5, HTTP), Pattern(b"PUT ", NULL, 4, HTTP),
    Pattern(b"PATCH ", NULL, 6, HTTP), Pattern(b"DELETE ", NULL, 7, HTTP),
    Pattern(b"OPTIONS ", NULL, 8, HTTP), Pattern(b"CONNECT ", NULL, 8, HTTP),
    Pattern(b"TRACE ", NULL, 6, HTTP), Pattern(b"PROPFIND ", NULL, 9, HTTP),
    Pattern(b"EHLO ", NULL, 5, SMTP), Pattern(b"HELO ", NULL, 5, SMTP),    # RFC 5321
    Pattern(b"<?xml ", NULL, 6, XMPP),                          # RFC 6120 section 4.2
    Pattern(b"<stream:stream ", NULL, 15, XMPP),
    Pattern(b"\x13BitTorrent protocol", NULL, 20, BITTORRENT),  # BEP 3
    # PostgreSQL's manual, "Message Formats": SSLRequest, GSSENCRequest, StartupMessage 3
    Pattern(b"\0\0\0\x08\x04\xd2\x16\x2f", NULL, 8, POSTGRESQL),
    Pattern(b"\0\0\0\x08\x04\xd2\x16\x30", NULL, 8, POSTGRESQL),
    Pattern(b"\0\0??\0\x03\0\0", b"..??....", 8, POSTGRESQL),
    Pattern(b"RFB ", NULL, 4, VNC),                             # RFC 6143 section 7.1.1
    Pattern(b"\x03\0???\xe0", b"..???.", 6, RDP),               # MS-RDPBCGR 2.2.1.1, X.224 CR
]
cdef Pattern[N_OF_ORIGINS] of_origins = [
    Pattern(b"SSH-", NULL, 4, SSH),
    Pattern(b"220 ", NULL, 4, SMTP), Pattern(b"220-", NULL, 4, SMTP),       # or FTP: see below
    Pattern(b"* OK", NULL, 4, IMAP), Pattern(b"* PREAUTH", NULL, 9, IMAP),  # RFC 9051
    Pattern(b"* BYE", NULL, 5, IMAP),
    Pattern(b"+OK", NULL, 3, POP3),                             # RFC 1939
    Pattern(b"RFB ", NULL, 4, VNC),
    Pattern(b"HTTP/1.", NULL, 7, HTTP),
    Pattern(b"??\0\0\x0a", b"??...", 5, MYSQL),                 # its manual, HandshakeV10
]


cdef Protocol read_client_opening(ClientHello *hello, const char *data,
                                  size_t n) noexcept nogil:
    cdef int length
    if n and data[0] == TLS_HANDSHAKE:
        length = parse_client_hello(hello, data, n)
        return TLS if length > 0 else UNDECIDED if length == 0 else UNKNOWN
    return look_up(of_clients, N_OF_CLIENTS, data, n)


cdef Protocol read_origin_opening(const char *data, size_t n) noexcept nogil:
    cdef Protocol protocol = look_up(of_origins, N_OF_ORIGINS, data, n)
    return read_banner(data, n) if protocol == SMTP else protocol


cdef Protocol read_inner_opening(const char *data, size_t n) noexcept nogil:
    """A line of text is HTTP if it has HTTP's name, or a known method in front, because an origin
    may read it as a request all the same, though it is none by RFC 9112. If the data begins with
    another octet, it is decided at once, because its protocol may have no lines."""
    cdef const char *end
    cdef size_t first = 0
    cdef size_t at
    cdef Protocol protocol
    while first < n and is_blank(data[first]):      # some skip more than RFC 9112 section 2.2 says
        first += 1
    at = first
    while at < n and is_class(data[at], CC_TOKEN):
        at += 1
    if at == n:
        return UNDECIDED if n < MOST_LINE else HTTP
    end = <const char *>memchr(data + first, c'\n', n - first)
    if names_http(data + first, (data + n if end == NULL else end) - data - first):
        return HTTP
    protocol = look_up(of_clients, N_OF_CLIENTS, data + first, n - first)
    if at == first or not (is_blank(data[at]) or c'!' <= data[at] <= c'~'):
        return protocol if data[first] == c'<' else UNKNOWN
    if is_blank(data[at]) and is_method(data + first, at - first):
        return HTTP
    if end == NULL:
        return UNDECIDED if n < MOST_LINE else HTTP
    return UNKNOWN if protocol == UNDECIDED else protocol


cdef bint names_http(const char *line, size_t n) noexcept nogil:
    cdef size_t i = 0
    while i + 5 <= n:
        if equals_lower(line + i, b"http/", 5):
            return True
        i += 1
    return False


cdef bint is_method(const char *token, size_t n) noexcept nogil:
    cdef const Pattern *row
    cdef int i
    for i in range(<int>N_OF_CLIENTS):
        row = &of_clients[i]
        if row.protocol == HTTP and row.n == n + 1 and memcmp(token, row.start, n) == 0:
            return True
    return False


cdef inline bint is_blank(char octet) noexcept nogil:
    """Is it an octet that some server skips or splits at? Python's takes any white space of Latin-1."""
    cdef unsigned char ch = <unsigned char>octet
    return 0x09 <= ch <= 0x0d or 0x1c <= ch <= 0x20 or ch == 0x85 or ch == 0xa0


cdef Protocol look_up(const Pattern *table, int rows, const char *data,
                      size_t n) noexcept nogil:
    cdef const Pattern *row
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


cdef const char *protocol_text(const Opening *opening) noexcept nogil:
    return words[opening.inside or opening.protocol]


# --- what is kept ------------------------------------------------------------------

cdef Opening *make_opening(Protocol protocol, const ClientHello *hello,
                           int wanted) except NULL:
    cdef char[MOST_ALPN] alpn
    cdef Opening *out
    if protocol != TLS:
        return new_opening(protocol, b"", 0, b"", 0)
    out = new_opening(protocol, hello.name, hello.name_len, alpn, put_protocols(alpn, hello))
    out.name_kind = hello.name_kind
    out.offers_ech = hello.offers_ech
    out.version = hello.version
    if wanted & WITH_JA4:
        write_ja4(out.ja4, hello)
    if wanted & WITH_JA3:
        write_ja3(out.ja3, hello)
    return out


cdef Opening *new_opening(int protocol, const char *name, size_t name_len, const char *alpn,
                          size_t alpn_len) except NULL:
    cdef Opening *out = <Opening *>calloc(1, sizeof(Opening) + name_len + alpn_len)
    if out == NULL:
        raise MemoryError
    out.protocol = <uint8_t>protocol
    out.name_len = <uint8_t>name_len
    out.alpn_len = <uint8_t>alpn_len
    memcpy(<char *>(out + 1), name, name_len)
    memcpy(<char *>(out + 1) + name_len, alpn, alpn_len)
    return out


cdef int put_protocols(char *out, const ClientHello *hello) noexcept nogil:
    """Whole names, as many as there is room for."""
    cdef const uint8_t *p = hello.alpn.at
    cdef const uint8_t *end = p + hello.alpn.n
    cdef int n = 0
    while p < end and n + (n != 0) + p[0] <= MOST_ALPN:
        if n:
            out[n] = c','
            n += 1
        memcpy(out + n, p + 1, p[0])
        n += p[0]
        p += 1 + p[0]
    return n


cdef Opening *copy_opening(const Opening *o) except NULL:
    cdef size_t n = sizeof(Opening) + o.name_len + o.alpn_len
    cdef Opening *out = <Opening *>malloc(n)
    if out == NULL:
        raise MemoryError
    memcpy(out, o, n)
    return out


cdef tuple parts_of(const Opening *o):
    return (o.protocol, o.name_kind, bool(o.offers_ech), o.version,
            server_name(o)[:o.name_len], alpn_of(o)[:o.alpn_len], <bytes>o.ja4,
            <bytes>o.ja3)


cdef Opening *opening_of(tuple parts) except NULL:
    cdef bytes name, alpn, ja4, ja3
    protocol, kind, offers_ech, version, name, alpn, ja4, ja3 = parts
    if not 0 <= protocol < <int>N_PROTOCOLS or len(name) > 255 or len(alpn) > MOST_ALPN or (
            len(ja4) not in (0, JA4_BYTES) or len(ja3) not in (0, JA3_BYTES)):
        raise ValueError("an opening of another form")
    cdef Opening *out = new_opening(protocol, name, len(name), alpn, len(alpn))
    out.name_kind = kind
    out.offers_ech = offers_ech
    out.version = version
    memcpy(out.ja4, <const char *>ja4, len(ja4))
    memcpy(out.ja3, <const char *>ja3, len(ja3))
    return out
