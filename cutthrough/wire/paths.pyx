# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The path of a request, in each form that a server may read it in (R56; RFC 3986).

The server decides about the meaning of a path, because it goes up as it came (RFC 9110 section
7.7), and servers differ. A reading is the path as one kind of server sees it, in canonical spelling:

    as sent       /a%3Ab;v=1     an encoded character that need not be encoded stays encoded
    decoded       /a:b;v=1       it is decoded
    without       /a%3Ab, /a:b   the parameters of each segment are dropped, as servlets do
    parameters                   (RFC 3986 section 3.3)

Canonical spelling: hexadecimal digits in upper case, and a character that may not stand in a
segment (pchar of section 3.3) is encoded. Most paths have one reading: themselves.

A path is unclear if servers disagree about its segments, or decode it once more:

    /a//b                       empty segments, which some merge
    /a/../b  /a/%2e/b  /..;/    dot segments, encoded or with parameters
    /a%2Fb  /a%5Cb  /a\\b        encoded slashes, and backslashes, which some take for slashes
    /a%00  /a%0A                encoded control characters
    /%2561                      an encoded percent sign before two hexadecimal digits
    /%C0%AE                     octets that spell a character too long for UTF-8
    /a%  /a%zz                  a percent sign that encodes nothing
    /a%3Bb;c                    an encoded semicolon beside another: which is dropped?
"""

from libc.stdint cimport uint8_t
from libc.string cimport memchr
from cutthrough.wire.chars cimport CC_HEX, is_class, text_of

cdef extern from *:
    """
    #include <stdint.h>

    #define PC_PCHAR 1      /* pchar of RFC 3986 section 3.3, but for the percent sign */
    #define PC_PLAIN 2      /* the same without ";" and ".": needs no second look */

    static const uint8_t path_class[256] = {
        ['A' ... 'Z'] = 3, ['a' ... 'z'] = 3, ['0' ... '9'] = 3, ['-'] = 3, ['_'] = 3,
        ['~'] = 3, ['!'] = 3, ['$'] = 3, ['&'] = 3, ['\\''] = 3, ['('] = 3, [')'] = 3,
        ['*'] = 3, ['+'] = 3, [','] = 3, ['='] = 3, [':'] = 3, ['@'] = 3,
        [';'] = PC_PCHAR, ['.'] = PC_PCHAR,
    };

    #define path_is(c, which) (path_class[(uint8_t)(c)] & (which))
    """
    enum:
        PC_PCHAR
        PC_PLAIN
    bint path_is(int c, int which) noexcept nogil

# How a path is read, as bits; and in what its readings may differ.
cdef enum:
    DECODED = 1
    BARE = 2                # without parameters
    SPELT = 4               # its spelling is not canonical
    UNCLEAR = -1

# Of the path that was read last.
cdef char rooms[MOST_READINGS][MOST_PATH]


cdef void set_path(Path *path, const char *text, size_t n) noexcept nogil:
    cdef const char *query = NULL
    if text != NULL:
        query = <const char *>memchr(text, c'?', n)
    path.text = text
    path.n = n if query == NULL else query - text
    path.is_read = False


cdef void read_path(Path *path) noexcept nogil:
    cdef int differs = survey(path.text, path.n), how
    cdef size_t n
    path.is_read = True
    path.n_readings = 0
    if differs == UNCLEAR:
        return
    if differs == 0:
        path.readings[0] = path.text
        path.lengths[0] = path.n
        path.n_readings = 1
        return
    for how in range(MOST_READINGS):
        if how & ~differs:
            continue
        n = put_reading(rooms[path.n_readings], path.text, path.n, how)
        if n == 0:
            path.n_readings = 0
            return
        path.readings[path.n_readings] = rooms[path.n_readings]
        path.lengths[path.n_readings] = n
        path.n_readings += 1


# Returns UNCLEAR, or bits: in what the readings differ.
cdef int survey(const char *text, size_t n) noexcept nogil:
    cdef size_t i = 1
    cdef size_t length = 0, dots = 0    # of the segment, decoded, without its parameters
    cdef int traits = 0
    cdef int escape = 0                 # 1: behind a decoded "%"; 2: behind "%" and a digit
    cdef uint8_t c, before = 0
    cdef bint has_parameters = False
    cdef int semicolons = 0             # 1: sent as they are; 2: encoded
    if n == 0 or n > MOST_PATH or text[0] != c'/':
        return UNCLEAR
    while True:
        while i < n and path_is(text[i], PC_PLAIN) and not escape:
            length += not has_parameters
            before = 0
            i += 1
        if i == n or text[i] == c'/':
            if (length == 0 and i < n) or (length <= 2 and length and length == dots):
                return UNCLEAR
            if i == n:
                return UNCLEAR if semicolons == 3 else traits
            length = dots = escape = before = 0
            has_parameters = False
            i += 1
            continue
        c = <uint8_t>text[i]
        i += 1
        if c == c';':
            semicolons |= 1
        elif c == c'%':
            if n - i < 2 or not is_class(text[i], CC_HEX) or not is_class(text[i + 1], CC_HEX):
                return UNCLEAR
            c = octet_at(text + i)
            if c == c';':
                semicolons |= 2
            if path_is(c, PC_PCHAR):
                traits |= DECODED
            elif c < 0x20 or c == 0x7f or c == c'/' or c == c'\\' or is_overlong(before, c):
                return UNCLEAR
            if text[i] >= c'a' or text[i + 1] >= c'a':
                traits |= SPELT
            i += 2
            if c == c'%':
                escape = 1
                before = c
                length += not has_parameters
                continue
        elif c <= 0x20 or c >= 0x7f or c == c'\\':
            return UNCLEAR
        elif not path_is(c, PC_PCHAR):
            traits |= SPELT
        if escape:
            escape = escape + 1 if is_class(<char>c, CC_HEX) else 0
            if escape == 3:
                return UNCLEAR
        if c == c';':
            traits |= BARE
            has_parameters = True
        if not has_parameters:
            length += 1
            dots += c == c'.'
        before = c


# Do these two octets begin a character that UTF-8 has in a shorter form (RFC 3629 section 3)?
cdef inline bint is_overlong(uint8_t before, uint8_t c) noexcept nogil:
    return c == 0xc0 or c == 0xc1 or (before == 0xe0 and 0x80 <= c < 0xa0) or (
        before == 0xf0 and 0x80 <= c < 0x90)


# The octet of two hexadecimal digits.
cdef inline uint8_t octet_at(const char *digits) noexcept nogil:
    return <uint8_t>(nibble(digits[0]) << 4 | nibble(digits[1]))


cdef inline int nibble(char c) noexcept nogil:
    return c - c'0' if c <= c'9' else (c | 0x20) - c'a' + 10


# Writes one reading of a path that is clear. Returns its length; 0: no room.
cdef size_t put_reading(char *out, const char *text, size_t n, int how) noexcept nogil:
    cdef const char *digits = b"0123456789ABCDEF"
    cdef size_t i = 0, o = 0
    cdef uint8_t c
    cdef bint is_encoded, dropped = False
    while i < n:
        c = <uint8_t>text[i]
        is_encoded = c == c'%'
        if is_encoded:
            c = octet_at(text + i + 1)
            i += 2
        i += 1
        if c == c'/':
            dropped = False
        elif c == c';' and how & BARE and (how & DECODED or not is_encoded):
            dropped = True
        if dropped:
            continue
        if c == c'/' or (path_is(c, PC_PCHAR) and (how & DECODED or not is_encoded)):
            if o == MOST_PATH:
                return 0
            out[o] = <char>c
            o += 1
        else:
            if o + 3 > MOST_PATH:
                return 0
            out[o] = c'%'
            out[o + 1] = digits[c >> 4]
            out[o + 2] = digits[c & 15]
            o += 3
    return o


def readings_of(source):
    """Returns the readings of a target's path and query; []: the path is unclear."""
    cdef Path path
    cdef size_t n
    cdef int i
    cdef const char *text = text_of(source, &n)
    set_path(&path, text, n)
    read_path(&path)
    return [path.readings[i][:path.lengths[i]] for i in range(path.n_readings)]
