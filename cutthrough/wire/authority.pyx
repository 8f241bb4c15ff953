# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Hosts and ports: bytes -> canonical form, and back (R16, R25; RFC 3986 section 3.2).

The only canonicaliser of host names. Two spellings of one destination are one destination,
because policy, DNS, cache keys, Host and logs all use its output. A disguised number (0x7f.1,
2130706433) becomes the address that inet_aton would return; if a text could be read both as a
name and as an address, it is refused.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy, memset, strchr
from cutthrough.outcome cimport BAD_TARGET
from cutthrough.wire.chars cimport CC_DIGIT, CC_HEX, CC_HOST, is_class, to_lower

cdef extern from "<string.h>" nogil:
    void *memrchr(const void *text, int c, size_t n)

cdef extern from "<arpa/inet.h>" nogil:
    int AF_INET6
    int inet_pton(int family, const char *text, void *address)
    const char *inet_ntop(int family, const void *address, char *text, uint32_t size)

cdef enum:
    MAX_NAME = 253          # RFC 1035 section 3.1: 255 octets on the wire, 253 as text
    MAX_LABEL = 63
    MAX_IPV6 = 45           # eight groups whose last two are a dotted quad


cdef bint is_uri_host(const char *p, size_t n) noexcept nogil:
    cdef const char *end = p + n
    cdef const char *close
    if n and p[0] == c'[':
        close = <const char *>memchr(p, c']', n)
        if close == NULL or not is_ip_literal(p + 1, close):
            return False
        p = close + 1
    else:
        p = skip_reg_name(p, end)       # it may be empty
    if p < end:
        if p[0] != c':':
            return False
        p += 1
        while p < end and is_class(p[0], CC_DIGIT):
            p += 1
    return p == end


cdef bint is_ip_literal(const char *p, const char *end) noexcept nogil:
    cdef Target ignored
    cdef const char *from_
    if p == end or to_lower(p[0]) != c'v':
        return read_ipv6(&ignored, p, end - p)
    p += 1                              # IPvFuture: "v" 1*HEXDIG "." 1*( … / ":" )
    from_ = p
    while p < end and is_class(p[0], CC_HEX):
        p += 1
    if p == from_ or p == end or p[0] != c'.' or p + 1 == end:
        return False
    p += 1
    while p < end and (p[0] == c':' or is_reg_char(p[0])):
        p += 1
    return p == end


# Is it one of unreserved and sub-delims of RFC 3986?
cdef bint is_reg_char(char c) noexcept nogil:
    return is_class(c, CC_HOST) or (c and strchr(b".~!$&'()*+,;=", c) != NULL)


# Returns the end of *( unreserved / pct-encoded / sub-delims ).
cdef const char *skip_reg_name(const char *p, const char *end) noexcept nogil:
    while p < end:
        if is_reg_char(p[0]):
            p += 1
        elif p[0] == c'%' and end - p >= 3 and is_class(p[1], CC_HEX) and is_class(p[2], CC_HEX):
            p += 3
        else:
            break
    return p


cdef int parse_authority(Target *target, const char *text, size_t n,
                         int default_port) noexcept nogil:
    cdef const char *end = text + n
    cdef const char *p = text
    cdef const char *colon = NULL
    cdef uint32_t port = 0
    memset(target.address, 0, sizeof(target.address))
    if default_port == 0:
        colon = <const char *>memrchr(text, c':', n)
    if colon != NULL and text[0] != c'[' and memchr(text, c':', colon - text) != NULL:
        # "::1:443", as Python's http.client sent it before 3.12: the port must be there
        p = colon
        if not read_ipv6(target, text, p - text):
            return -BAD_TARGET
    elif n and text[0] == c'[':
        p = <const char *>memchr(text, c']', n)
        if p == NULL or not read_ipv6(target, text + 1, p - text - 1):
            return -BAD_TARGET
        p += 1
    else:
        p = read_name(target, text, end)
        if p == NULL:
            return -BAD_TARGET
    if p == end:
        if default_port == 0:
            return -BAD_TARGET
        target.port = default_port
        return 0
    # A colon and one to five digits: RFC 3986 allows an empty port, this proxy does not (R16).
    if p[0] != c':' or end - p < 2 or end - p > 6:
        return -BAD_TARGET
    p += 1
    while p < end:
        if not is_class(p[0], CC_DIGIT):
            return -BAD_TARGET
        port = port * 10 + (p[0] - c'0')
        p += 1
    if port == 0 or port > 65535:
        return -BAD_TARGET
    target.port = port
    return 0


cdef int parse_host(Target *target, const char *text, size_t n) noexcept nogil:
    cdef const char *end = text + n
    memset(target.address, 0, sizeof(target.address))
    if memchr(text, c':', n) != NULL:       # only an IPv6 address has one
        return 0 if read_ipv6(target, text, n) else -BAD_TARGET
    return 0 if read_name(target, text, end) == end else -BAD_TARGET


cdef void set_address(Target *target, int family, const uint8_t *data) noexcept nogil:
    memset(target.address, 0, sizeof(target.address))
    memcpy(target.address, data, 4 if family == 4 else 16)
    if family == 4:
        put_ipv4(target)
    else:
        put_ipv6(target)


# Reads a name up to a colon or the end. Returns where it stopped, or NULL: invalid.
cdef const char *read_name(Target *target, const char *p, const char *end) noexcept nogil:
    cdef char *out = target.host
    cdef char *label = out          # start of the label being read
    cdef char *last = out           # start of the last whole label
    cdef size_t room = MAX_NAME + 1     # the 253 and a trailing dot
    while True:
        while p < end and is_class(p[0], CC_HOST):
            if room == 0:
                return NULL
            room -= 1
            out[0] = to_lower(p[0])
            out += 1
            p += 1
        if out == label:
            # Only the root's label may be empty: one trailing dot, after a label.
            if label == target.host:
                return NULL
            out -= 1
            break
        if out - label > MAX_LABEL:
            return NULL
        last = label
        if p == end or p[0] != c'.':
            break
        if room == 0:
            return NULL
        room -= 1
        out[0] = c'.'
        out += 1
        p += 1
        label = out
    if p < end and p[0] != c':':
        return NULL
    target.host_len = out - target.host
    if target.host_len > MAX_NAME:
        return NULL
    out[0] = 0
    target.host_kind = HOST_NAME
    # As in the URL standard, if the last label is a number, the whole is an address.
    if is_class(last[0], CC_DIGIT) and is_number(last, out) and not read_ipv4(target):
        return NULL
    return p


cdef bint is_number(const char *p, const char *end) noexcept nogil:
    cdef int digits = CC_DIGIT
    if end - p >= 2 and p[0] == c'0' and p[1] == c'x':
        digits = CC_HEX
        p += 2
    while p < end:
        if not is_class(p[0], digits):
            return False
        p += 1
    return True


# Reads target.host as inet_aton does: one to four parts, each decimal, 0octal or 0xhex; the last
# one fills the other octets. Replaces it by its dotted quad.
cdef bint read_ipv4(Target *target) noexcept nogil:
    cdef const char *p = target.host
    cdef const char *end = p + target.host_len
    cdef uint64_t part
    cdef uint32_t address = 0
    cdef int parts = 0
    cdef int base, digit
    cdef int i
    cdef bint is_disguised = False
    while True:
        if parts == 4:
            return False
        base = 10
        if p[0] == c'0' and p + 1 < end and p[1] != c'.':
            is_disguised = True
            base = 8
            p += 1
            if p[0] == c'x':
                base = 16
                p += 1
        if p == end or p[0] == c'.':
            return False            # "0x" alone is zero to some readers, an error to others
        part = 0
        while p < end and p[0] != c'.':
            if not is_class(p[0], CC_HEX):
                return False
            digit = p[0] - c'0' if p[0] <= c'9' else p[0] - c'a' + 10
            if digit >= base:
                return False
            part = part * base + digit
            if part >> 32:
                return False
            p += 1
        parts += 1
        if p == end:
            break
        if part > 0xff:
            return False
        address |= <uint32_t>part << (32 - 8 * parts)
        p += 1
    # `parts` - 1 octets are taken: the last part has the remaining bits.
    if parts > 1 and part >> (40 - 8 * parts):
        return False
    address |= <uint32_t>part
    for i in range(4):
        target.address[i] = (address >> (24 - 8 * i)) & 0xff
    target.host_kind = HOST_IPV4
    if is_disguised or parts < 4:
        put_ipv4(target)
    return True


# Writes target.host. Not by inet_ntop, because glibc's took 75 ns of a target's 100.
cdef void put_ipv4(Target *target) noexcept nogil:
    cdef char *out = target.host
    cdef int i
    target.host_kind = HOST_IPV4
    for i in range(4):
        if i:
            out[0] = c'.'
            out += 1
        out += put_number(out, target.address[i])
    out[0] = 0
    target.host_len = out - target.host


cdef void put_ipv6(Target *target) noexcept nogil:
    inet_ntop(AF_INET6, target.address, target.host, MAX_HOST + 1)
    target.host_kind = HOST_IPV6
    target.host_len = 0
    while target.host[target.host_len]:
        target.host_len += 1


# Between the brackets: RFC 4291 in, RFC 5952 out. No IPvFuture. IPv4-mapped stays IPv6, because
# its meaning is the policy's business. A zone ("%25eth0") of the client's host means nothing here
# and is dropped (RFC 6874 section 4), because one address must have one spelling.
cdef bint read_ipv6(Target *target, const char *text, size_t n) noexcept nogil:
    cdef char copy[MAX_IPV6 + 1]
    cdef const char *zone = <const char *>memchr(text, c'%', n)
    cdef size_t i
    if zone != NULL:
        if not is_zone(zone, text + n):
            return False
        n = zone - text
    if n > MAX_IPV6:
        return False
    for i in range(n):
        if not (is_class(text[i], CC_HEX) or text[i] == c':' or text[i] == c'.'):
            return False
    memcpy(copy, text, n)
    copy[n] = 0
    if inet_pton(AF_INET6, copy, target.address) != 1:
        return False
    put_ipv6(target)
    return True


# "%25" ZoneID, which is 1*( unreserved / pct-encoded ) (RFC 6874 section 2).
cdef bint is_zone(const char *p, const char *end) noexcept nogil:
    if end - p < 4 or p[1] != c'2' or p[2] != c'5':
        return False
    p += 3
    while p < end:
        if is_class(p[0], CC_HOST) or p[0] == c'.' or p[0] == c'~':
            p += 1
        elif p[0] == c'%' and end - p >= 3 and is_class(p[1], CC_HEX) and is_class(p[2], CC_HEX):
            p += 3
        else:
            return False
    return True


cdef int build_authority(char *out, const Target *target, int default_port) noexcept nogil:
    cdef bint brackets = target.host_kind == HOST_IPV6
    cdef int at = 0
    if brackets:
        out[0] = c'['
        at = 1
    memcpy(out + at, target.host, target.host_len)
    at += target.host_len
    if brackets:
        out[at] = c']'
        at += 1
    if target.port == default_port:
        return at
    out[at] = c':'
    return at + 1 + put_number(out + at + 1, target.port)


cdef int put_number(char *out, uint32_t number) noexcept nogil:
    cdef char[10] digits
    cdef int i = 10
    # Divides by a constant, because that is a multiplication, and a JA3 has sixty numbers
    while True:
        i -= 1
        digits[i] = <char>(c'0' + number % 10)
        number //= 10
        if number == 0:
            break
    memcpy(out, digits + i, 10 - i)
    return 10 - i
