"""Characters of the wire: classes from one table, and scans of 16 bytes at a time.

Everything here is inline: each module of the package compiles its own copy, because a test of
a class must be one load. The classes are those of RFC 9110 sections 5.6.2 and 5.5 and RFC 9112
section 3.2.
"""

from libc.stdint cimport uint8_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define CC_TOKEN  1     /* tchar */
    #define CC_TARGET 2     /* request-target: RFC 3986, and what browsers and curl leave raw:
                               all visible ASCII. '#' is included, because target.pyx refuses
                               it. Octets above 0x7f: see http1.pyx. */
    #define CC_VALUE  4     /* field-vchar, SP, HTAB; obs-text too */
    #define CC_DIGIT  8
    #define CC_HEX    16
    #define CC_HOST   32    /* a letter, digit, hyphen or underscore of a host name */

    #define CC_PUNCT  (CC_TOKEN | CC_TARGET | CC_VALUE)
    #define CC_DELIM  (CC_TARGET | CC_VALUE)
    #define CC_ALPHA  (CC_PUNCT | CC_HOST)

    static const uint8_t char_class[256] __attribute__((unused)) = {
        ['\\t'] = CC_VALUE, [' '] = CC_VALUE,
        ['!'] = CC_PUNCT, ['"'] = CC_DELIM, ['#' ... '\\''] = CC_PUNCT,
        ['('] = CC_DELIM, [')'] = CC_DELIM, ['*'] = CC_PUNCT, ['+'] = CC_PUNCT,
        [','] = CC_DELIM, ['-'] = CC_ALPHA, ['.'] = CC_PUNCT, ['/'] = CC_DELIM,
        ['0' ... '9'] = CC_ALPHA | CC_DIGIT | CC_HEX,
        [':'] = CC_DELIM, [';'] = CC_DELIM, ['<'] = CC_DELIM, ['='] = CC_DELIM,
        ['>'] = CC_DELIM, ['?'] = CC_DELIM, ['@'] = CC_DELIM,
        ['A' ... 'F'] = CC_ALPHA | CC_HEX, ['G' ... 'Z'] = CC_ALPHA,
        ['['] = CC_DELIM, ['\\\\'] = CC_DELIM, [']'] = CC_DELIM,
        ['^'] = CC_PUNCT, ['_'] = CC_ALPHA, ['`'] = CC_PUNCT,
        ['a' ... 'f'] = CC_ALPHA | CC_HEX, ['g' ... 'z'] = CC_ALPHA,
        ['{'] = CC_DELIM, ['|'] = CC_PUNCT, ['}'] = CC_DELIM, ['~'] = CC_PUNCT,
        [0x80 ... 0xff] = CC_VALUE,
    };

    #define is_class(c, classes) (char_class[(uint8_t)(c)] & (classes))

    static inline char to_lower(char c) {
        return c | ((uint8_t)(c - 'A') < 26) << 5;
    }

    static inline uint64_t load8(const char *p) { uint64_t w; memcpy(&w, p, 8); return w; }
    static inline uint32_t load4(const char *p) { uint32_t w; memcpy(&w, p, 4); return w; }

    /* Each scan returns the first octet that it does not skip, or end. The functions of 16 octets
       return a bit for each octet that may end the scan. Names are mostly letters and hyphens: the
       other tchars end it there, and the table has them. */
    #ifdef __SSE2__
    #include <emmintrin.h>
    #define EACH(c) _mm_set1_epi8((char)(c))
    static inline unsigned no_letters(__m128i text) {
        __m128i from_a = _mm_add_epi8(_mm_or_si128(text, EACH(0x20)), EACH(0x80 - 'a'));
        return 0xffff ^ _mm_movemask_epi8(_mm_or_si128(
            _mm_cmplt_epi8(from_a, EACH(0x80 + 26)), _mm_cmpeq_epi8(text, EACH('-'))));
    }
    static inline unsigned invisible(__m128i text) {    /* signed, 0x80 and above are the least */
        return 0xffff ^ _mm_movemask_epi8(_mm_and_si128(
            _mm_cmpgt_epi8(text, EACH(0x20)), _mm_cmplt_epi8(text, EACH(0x7f))));
    }
    static inline unsigned controls(__m128i text) {
        return _mm_movemask_epi8(_mm_or_si128(
            _mm_cmpeq_epi8(_mm_min_epu8(text, EACH(0x1f)), text), _mm_cmpeq_epi8(text, EACH(0x7f))));
    }
    #define SCAN_16(p, end, stops, at_stop) \\
        for (; end - p >= 16; p += 16) { \\
            unsigned stop = stops(_mm_loadu_si128((const __m128i *)p)); \\
            if (stop) { \\
                p += __builtin_ctz(stop); \\
                at_stop; \\
            } \\
        }
    #else
    #define SCAN_16(p, end, stops, at_stop)
    #endif

    static inline const char *skip_token(const char *p, const char *end) {
        SCAN_16(p, end, no_letters, break)
        while (p < end && is_class(*p, CC_TOKEN))
            p++;
        return p;
    }

    static inline const char *skip_target(const char *p, const char *end) {
        SCAN_16(p, end, invisible, return p)
        while (p < end && is_class(*p, CC_TARGET))
            p++;
        return p;
    }

    /* Returns the first octet below 0x20 or equal to 0x7f, or end. */
    static inline const char *find_control(const char *p, const char *end) {
        SCAN_16(p, end, controls, return p)
        const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
        for (; end - p >= 8; p += 8) {
            uint64_t w = load8(p), del = w ^ ones * 0x7f;
            uint64_t hit = (((w - ones * 0x20) & ~w) | ((del - ones) & ~del)) & highs;
            if (hit) {
    #if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
                /* A borrow can only set a wrong flag above the first right one. */
                return p + (__builtin_ctzll(hit) >> 3);
    #else
                break;
    #endif
            }
        }
        for (; p < end; p++)
            if ((uint8_t)*p < 0x20 || *p == 0x7f)
                break;
        return p;
    }

    /* Is the token at p this lower-case name? Both have the same, constant, length. `lower`
       has only letters and hyphens, so among tchars |0x20 confuses no two characters. */
    static inline int is_name(const char *p, const char *lower, size_t n) {
        const uint64_t fold8 = 0x2020202020202020u;
        const uint32_t fold4 = 0x20202020u;
        size_t i;
        if (n >= 8) {
            for (i = 0; i + 8 < n; i += 8)
                if ((load8(p + i) | fold8) != load8(lower + i))
                    return 0;
            return (load8(p + n - 8) | fold8) == load8(lower + n - 8);
        }
        if (n >= 4)
            return (load4(p) | fold4) == load4(lower)
                && (load4(p + n - 4) | fold4) == load4(lower + n - 4);
        for (i = 0; i < n; i++)
            if ((p[i] | 0x20) != lower[i])
                return 0;
        return 1;
    }
    """
    enum:
        CC_TOKEN
        CC_TARGET
        CC_VALUE
        CC_DIGIT
        CC_HEX
        CC_HOST
    bint is_class(char c, int classes) noexcept nogil
    char to_lower(char c) noexcept nogil
    const char *skip_token(const char *p, const char *end) noexcept nogil
    const char *skip_target(const char *p, const char *end) noexcept nogil
    const char *find_control(const char *p, const char *end) noexcept nogil
    bint is_name(const char *p, const char *lower, size_t n) noexcept nogil


# Reads the next member of a comma list: white space is trimmed, empty members are skipped
# (RFC 9110 section 5.6.1.2). False at the end. Quotes are not read: for lists of tokens.
cdef inline bint next_member(const char **at, const char *end,
                             const char **member, size_t *length) noexcept nogil:
    cdef const char *p = at[0]
    cdef const char *last
    while p < end and (p[0] == c',' or p[0] == c' ' or p[0] == c'\t'):
        p += 1
    if p == end:
        at[0] = p
        return False
    member[0] = p
    last = p
    while p < end and p[0] != c',':
        if p[0] != c' ' and p[0] != c'\t':
            last = p
        p += 1
    at[0] = p
    length[0] = last + 1 - member[0]
    return True


cdef inline bint is_token(const char *p, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if not is_class(p[i], CC_TOKEN):
            return False
    return n > 0


# Is the text this lower-case constant of the same length, in any case?
cdef inline bint equals_lower(const char *text, const char *lower, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if to_lower(text[i]) != lower[i]:
            return False
    return True


# Are two texts of one length the same, in any case?
cdef inline bint is_same(const char *a, const char *b, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if to_lower(a[i]) != to_lower(b[i]):
            return False
    return True


# For the test entry points: bytes, or (address, length) for memory that ends at a guard page.
cdef inline const char *text_of(object source, size_t *n) except NULL:
    if isinstance(source, tuple):
        n[0] = source[1]
        return <const char *><size_t>source[0]
    n[0] = len(<bytes>source)
    return <const char *><bytes>source
