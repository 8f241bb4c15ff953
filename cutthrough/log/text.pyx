# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Text into a buffer, with wire data escaped on the way (R37)."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy
from libc.time cimport time_t, tm
from cutthrough.net.address cimport ADDRESS_TEXT, Address, print_address
from cutthrough.net.linux cimport CLOCK_REALTIME, clock_gettime, timespec

cdef extern from "<time.h>" nogil:
    tm *gmtime_r(const time_t *seconds, tm *out)

cdef enum:
    MOST_STRING = 256

# The numbers below 100, in two digits each
cdef bytes PAIRS = b"".join([b"%02d" % number for number in range(100)])
cdef const char *pairs = PAIRS
cdef const char *HEX = b"0123456789abcdef"
# Longest form of one escaped octet
cdef int[N_QUOTES] longest = [3, 3, 3, 3, 3, 4, 6]
# 1: the octet stays as it is
cdef uint8_t[N_QUOTES][256] plain

cdef time_t second
cdef char second_text[20]       # 2026-11-21T04:25:36


cdef int fill() except -1:
    cdef int ch, quote
    for ch in range(0x20, 0x7f):
        for quote in range(<int>N_QUOTES):
            plain[quote][ch] = ch != 0x5c
    for ch in b' "':
        plain[<int>Q_URL][ch] = plain[<int>Q_PERCENT][ch] = plain[<int>Q_BRACED][ch] = 0
    for ch in b'{|}':
        plain[<int>Q_BRACED][ch] = 0
    for ch in b'%[]"':
        plain[<int>Q_MIME][ch] = 0
    plain[<int>Q_PERCENT][0x25] = 0
    plain[<int>Q_CSV][0x22] = plain[<int>Q_STRING][0x22] = plain[<int>Q_JSON][0x22] = 0
    return 0


fill()


cdef char *put_number(char *p, uint64_t x) noexcept:
    cdef char digits[20]
    cdef int i = 20
    if x <= 0xff:
        return put_octet(p, <uint8_t>x)
    while x >= 10:
        i -= 2
        memcpy(digits + i, pairs + 2 * (x % 100), 2)
        x //= 100
    if x:
        i -= 1
        digits[i] = <char>(48 + x)
    memcpy(p, digits + i, 20 - i)
    return p + (20 - i)


cdef inline char *put_octet(char *p, uint8_t x) noexcept:
    if x >= 100:
        p[0] = <char>(48 + x // 100)
        memcpy(p + 1, pairs + 2 * (x % 100), 2)
        return p + 3
    if x >= 10:
        memcpy(p, pairs + 2 * x, 2)
        return p + 2
    p[0] = <char>(48 + x)
    return p + 1


cdef char *put_padded(char *p, uint64_t x, int width) noexcept:
    cdef int i = width
    while i > 0:
        i -= 1
        p[i] = <char>(48 + x % 10)
        x //= 10
    return p + width


cdef char *put_ms(char *p, uint64_t us) noexcept:
    p = put_number(p, us // 1000)
    p[0] = b"."
    return put_padded(p + 1, us % 1000, 3)


cdef char *put_address(char *p, const Address *address) noexcept:
    cdef char text[ADDRESS_TEXT]
    cdef const unsigned char *b = <const unsigned char *>(<Address *>address).bytes
    cdef int i
    if address.family == 4:             # inet_ntop costs five times as much
        for i in range(4):
            p = put_octet(p, b[i])
            p[0] = b"."
            p += 1
        return p - 1
    if address.family == 0:
        p[0] = b"-"
        return p + 1
    print_address(address, text)
    return put_text(p, text)


cdef inline char *put_unit(char *p, unsigned char ch, Quote quote) noexcept:
    """Writes one escaped octet."""
    if quote == Q_CSV and ch == b'"':
        return put_text(p, b'""')
    if quote <= Q_MIME:
        p[0] = b"%"
    elif ch == b'"' or ch == b"\\":
        p[0] = b"\\"
        p[1] = <char>ch
        return p + 2
    elif quote == Q_JSON:
        p = put_text(p, b"\\u00") - 1
    elif ch == b"\r" or ch == b"\n" or ch == b"\t":
        p[0] = b"\\"
        p[1] = b"r" if ch == b"\r" else b"n" if ch == b"\n" else b"t"
        return p + 2
    else:
        p[0] = b"\\"
        p[1] = b"x"
        p += 1
    p[1] = HEX[ch >> 4]
    p[2] = HEX[ch & 15]
    return p + 3


cdef char *put_escaped(char *p, const char *data, size_t n, Quote quote, const char *last,
                       bint mark) noexcept:
    cdef const uint8_t *stays = plain[<int>quote]
    cdef size_t i
    cdef unsigned char ch
    if longest[<int>quote] * <int64_t>n <= last - p:
        for i in range(n):
            ch = <unsigned char>data[i]
            p[0] = <char>ch
            p = p + 1 if stays[ch] else put_unit(p, ch, quote)
        return p
    for i in range(n):
        ch = <unsigned char>data[i]
        if p + (1 if stays[ch] else longest[<int>quote]) > last:
            return put_text(p, b"\xe2\x80\xa6") if mark else p
        p[0] = <char>ch
        p = p + 1 if stays[ch] else put_unit(p, ch, quote)
    return p


cdef char *put_string(char *p, bytes value) except NULL:
    return put_text(p, b"null") if value is None else put_json(p, value, len(value))


cdef char *put_json(char *p, const char *data, size_t n) noexcept:
    n = min(n, <size_t>MOST_STRING)
    p[0] = b'"'
    p = put_escaped(p + 1, data, n, Q_JSON, p + 1 + 6 * n, False)
    p[0] = b'"'
    return p + 1


cdef char *put_time(char *p) noexcept:
    cdef timespec now
    cdef tm parts
    cdef char *q
    global second
    clock_gettime(CLOCK_REALTIME, &now)
    if now.tv_sec != second:
        second = now.tv_sec
        gmtime_r(&second, &parts)
        q = put_padded(second_text, parts.tm_year + 1900, 4)
        q[0] = b"-"
        q = put_padded(q + 1, parts.tm_mon + 1, 2)
        q[0] = b"-"
        q = put_padded(q + 1, parts.tm_mday, 2)
        q[0] = b"T"
        q = put_padded(q + 1, parts.tm_hour, 2)
        q[0] = b":"
        q = put_padded(q + 1, parts.tm_min, 2)
        q[0] = b":"
        put_padded(q + 1, parts.tm_sec, 2)
    memcpy(p, second_text, 19)
    p[19] = b"."
    p = put_padded(p + 20, now.tv_nsec // 1000000, 3)
    p[0] = b"Z"
    return p + 1
