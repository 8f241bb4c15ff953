# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fingerprint of a client's TCP: the signature of a SYN, in the form of p0f 3.

    4:64+0:0:1460:mss*44,7:mss,sok,ts,nop,ws:df,id+:0
    version:TTL+distance:length of IP's options:MSS:window,scale:options:quirks:payload

The form is that of p0f's `raw_sig` (lcamtuf.coredump.cx/p0f3, README, section 5). The distance is
what lacks to the next usual first TTL; more than 35 is written as `?`. A window that is a multiple
of the MSS, or of the MTU, is written so. A quirk is what most systems do not do.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcpy, strlen
from cutthrough.wire.authority cimport put_number

cdef enum:
    IPV4 = 20               # octets of a header without options
    IPV6 = 40
    TCP = 20
    IS_TCP = 6              # next header
    ETHERNET = 1500         # an MTU
    MOST_OPTIONS = 24       # p0f reads no more
    MOST_DISTANCE = 35
    # Options (RFC 9293, 7323, 2018)
    EOL = 0
    NOP = 1
    MSS = 2
    SCALE = 3
    SACK_PERMITTED = 4
    SACK = 5
    TIMESTAMPS = 8
    MOST_SCALE = 14

# In p0f's order
cdef enum Quirk:
    Q_DF, Q_ID, Q_NO_ID, Q_ECN, Q_RESERVED, Q_FLOW, Q_NO_SEQ, Q_ACK, Q_NO_ACK, Q_POINTER, Q_URGENT,
    Q_PUSH, Q_NO_TS, Q_PEER_TS, Q_PADDING, Q_SCALE, Q_BAD
    N_QUIRKS

cdef const char *QUIRKS = (
    b"df\0\0\0\0\0\0id+\0\0\0\0\0id-\0\0\0\0\0ecn\0\0\0\0\0" b"0+\0\0\0\0\0\0flow\0\0\0\0"
    b"seq-\0\0\0\0ack+\0\0\0\0ack-\0\0\0\0uptr+\0\0\0urgf+\0\0\0pushf+\0\0ts1-\0\0\0\0"
    b"ts2+\0\0\0\0opt+\0\0\0\0exws\0\0\0\0bad\0\0\0\0\0")

cdef struct Syn:
    uint32_t quirks         # bits by Quirk
    int version
    int ip_options          # octets
    int headers             # octets of both
    int ttl
    int window
    int mss, scale          # 0: without the option
    uint32_t ts             # the client's own
    bint has_payload
    int n                   # of options
    int padding             # octets behind the end of options
    uint8_t[MOST_OPTIONS] options


cdef size_t write_signature(char *out, const unsigned char *packet, size_t n) noexcept nogil:
    cdef Syn s
    cdef char *p = out
    cdef int distance
    if not read_headers(&s, packet, n):
        return 0
    distance = (32 if s.ttl <= 32 else 64 if s.ttl <= 64 else 128 if s.ttl <= 128 else 255) - s.ttl
    p = put_decimal(p, s.version)
    p = put_decimal(put(p, b":"), s.ttl)
    p = put(p, b"+")
    p = put(p, b"?") if distance > MOST_DISTANCE else put_decimal(p, distance)
    p = put_decimal(put(p, b":"), s.ip_options)
    p = put_decimal(put(p, b":"), s.mss)
    p = put_window(put(p, b":"), &s)
    p = put_decimal(put(p, b","), s.scale)
    p = put_options(put(p, b":"), &s)
    p = put_quirks(put(p, b":"), s.quirks)
    return put(p, b":+" if s.has_payload else b":0") - out


def signature(bytes packet):
    """The signature of the headers of a SYN; None: these are none."""
    cdef char[MOST_SIGNATURE] text
    cdef size_t n = write_signature(text, packet, len(packet))
    return text[:n].decode("ascii") if n else None


cdef inline char *put(char *p, const char *text) noexcept nogil:
    cdef size_t n = strlen(text)
    memcpy(p, text, n)
    return p + n


cdef inline char *put_decimal(char *p, uint32_t number) noexcept nogil:
    return p + put_number(p, number)


cdef inline int read_16(const uint8_t *p) noexcept nogil:
    return p[0] << 8 | p[1]


cdef inline uint32_t read_32(const uint8_t *p) noexcept nogil:
    return <uint32_t>p[0] << 24 | <uint32_t>p[1] << 16 | <uint32_t>p[2] << 8 | p[3]


cdef bint read_headers(Syn *s, const uint8_t *p, size_t n) noexcept nogil:
    cdef int behind                     # octets behind the header of IP, as that says
    cdef int length                     # of the header of TCP
    s.quirks = 0
    s.version = p[0] >> 4 if n else 0
    if s.version == 4 and n >= IPV4 + TCP:
        s.headers = (p[0] & 15) * 4
        s.ip_options = s.headers - IPV4
        s.ttl = p[8]
        behind = read_16(p + 2) - s.headers
        if s.ip_options < 0 or p[9] != IS_TCP:
            return False
        add(s, Q_ECN, p[1] & 3)
        add(s, Q_RESERVED, p[6] & 0x80)
        add(s, Q_DF, p[6] & 0x40)
        if p[6] & 0x40:
            add(s, Q_ID, read_16(p + 4))
        else:
            add(s, Q_NO_ID, read_16(p + 4) == 0)
    elif s.version == 6 and n >= IPV6 + TCP:
        s.headers = IPV6
        s.ip_options = 0
        s.ttl = p[7]
        behind = read_16(p + 4)
        if p[6] != IS_TCP:
            return False
        add(s, Q_ECN, read_32(p) >> 20 & 3)
        add(s, Q_FLOW, read_32(p) & 0xfffff)
    else:
        return False
    if n < <size_t>(s.headers + TCP):
        return False
    p += s.headers
    length = (p[12] >> 4) * 4
    if length < TCP or n < <size_t>(s.headers + length):
        return False
    s.headers += length
    s.has_payload = behind > length
    s.window = read_16(p + 14)
    add(s, Q_ECN, p[12] & 1 or p[13] & 0xc0)
    add(s, Q_NO_SEQ, read_32(p + 4) == 0)
    if p[13] & 0x10:
        add(s, Q_NO_ACK, read_32(p + 8) == 0)
    else:
        add(s, Q_ACK, read_32(p + 8))
    if p[13] & 0x20:
        add(s, Q_URGENT, True)
    else:
        add(s, Q_POINTER, read_16(p + 18))
    add(s, Q_PUSH, p[13] & 8)
    read_options(s, p + TCP, p + length)
    return True


cdef inline void add(Syn *s, int quirk, uint32_t has) noexcept nogil:
    if has:
        s.quirks |= <uint32_t>1 << quirk


cdef void read_options(Syn *s, const uint8_t *p, const uint8_t *end) noexcept nogil:
    """A wrong length is a quirk. An option that ends beyond the header ends the list."""
    cdef int kind, length
    s.n = s.padding = s.mss = s.scale = 0
    s.ts = 0
    while p < end and s.n < MOST_OPTIONS:
        kind = p[0]
        s.options[s.n] = <uint8_t>kind
        s.n += 1
        p += 1
        if kind == NOP:
            continue
        if kind == EOL:
            s.padding = <int>(end - p)
            while p < end:
                add(s, Q_PADDING, p[0])
                p += 1
            return
        length = (4 if kind == MSS else 3 if kind == SCALE else 2 if kind == SACK_PERMITTED else
                  10 if kind == TIMESTAMPS else p[0] if p < end else 0)
        if end - p < length - 1 or length < 2 or length > 40 or (
                kind == SACK and not 10 <= length <= 34):
            add(s, Q_BAD, True)
            return
        add(s, Q_BAD, p[0] != length)
        if kind == MSS:
            s.mss = read_16(p + 1)
        elif kind == SCALE:
            s.scale = p[1]
            add(s, Q_SCALE, s.scale > MOST_SCALE)
        elif kind == TIMESTAMPS:
            s.ts = read_32(p + 1)
            add(s, Q_NO_TS, s.ts == 0)
            add(s, Q_PEER_TS, read_32(p + 5))
        p += length - 1
    add(s, Q_BAD, p < end)


cdef char *put_window(char *p, const Syn *s) noexcept nogil:
    """As a multiple, of the first of p0f's divisors that divides it."""
    cdef int[10] divisors
    cdef int n = 0
    cdef int n_mss, i
    if s.window and s.mss >= 100:
        divisors[0], n = s.mss, 1
        if s.ts:                        # some subtract the timestamps
            divisors[n], n = s.mss - 12, n + 1
        divisors[n], divisors[n + 1], n = ETHERNET - 40, ETHERNET - 52, n + 2
        if s.version == 6:
            divisors[n], divisors[n + 1], n = ETHERNET - 60, ETHERNET - 72, n + 2
        n_mss = n
        divisors[n], divisors[n + 1], n = s.mss + 40, s.mss + s.headers, n + 2
        if s.version == 6:
            divisors[n], n = s.mss + 60, n + 1
        divisors[n], n = ETHERNET, n + 1
        for i in range(n):
            if s.window % divisors[i] == 0:
                p = put(p, b"mss*" if i < n_mss else b"mtu*")
                return put_decimal(p, s.window // divisors[i])
    return put_decimal(p, s.window)


cdef char *put_options(char *p, const Syn *s) noexcept nogil:
    cdef int i, kind
    for i in range(s.n):
        kind = s.options[i]
        if i:
            p = put(p, b",")
        if kind == EOL:
            p = put_decimal(put(p, b"eol+"), s.padding)
        elif kind == NOP:
            p = put(p, b"nop")
        elif kind == MSS:
            p = put(p, b"mss")
        elif kind == SCALE:
            p = put(p, b"ws")
        elif kind == SACK_PERMITTED:
            p = put(p, b"sok")
        elif kind == SACK:
            p = put(p, b"sack")
        elif kind == TIMESTAMPS:
            p = put(p, b"ts")
        else:
            p = put_decimal(put(p, b"?"), kind)
    return p


cdef char *put_quirks(char *p, uint32_t quirks) noexcept nogil:
    cdef int i
    cdef bint is_first = True
    for i in range(<int>N_QUIRKS):
        if quirks & (<uint32_t>1 << i):
            if not is_first:
                p = put(p, b",")
            p = put(p, QUIRKS + 8 * i)
            is_first = False
    return p
