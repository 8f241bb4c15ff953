# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fingerprints of a ClientHello: JA4 and JA3.

JA4 is FoxIO's (github.com/FoxIO-LLC/ja4, technical_details/JA4.md; BSD-3), JA3 Salesforce's.
Both ignore GREASE (RFC 8701). The hashes are hashlib's, because these link no library to this
package: SHA-256 takes 0.3 µs, MD5 0.6 µs.

JA4 has the hashes of two sorted lists. The latest lists are kept with their hashes, because many
connections of one client software have the same lists.
"""

from hashlib import md5, sha256

from libc.stdint cimport uint8_t, uint16_t, uint32_t
from libc.stdlib cimport qsort
from libc.string cimport memcmp, memcpy, memset
from cutthrough.wire.chars cimport CC_DIGIT, is_class
from cutthrough.wire.clienthello cimport (
    ALPN, MOST_HELLO, NO_NAME, SERVER_NAME, ClientHello, Span, is_grease)
from cutthrough.wire.authority cimport put_number

cdef enum:
    MOST_NUMBERS = MOST_HELLO // 2
    FEW = 128                   # sorted by insertion
    # A number takes 2 bytes of the hello, and in JA3 up to 6 of text
    MOST_TEXT = 3 * MOST_HELLO + 64
    HASH_DIGITS = 12            # of SHA-256, in JA4
    N_PAIRS = 128               # of kept lists
    MOST_KEPT = 64              # numbers; the recorded clients have 13 to 59

cdef struct Kept:               # a list and its hash
    uint16_t n                  # 0: none yet
    uint16_t n_sorted           # the others are signature algorithms
    uint16_t numbers[MOST_KEPT]
    char digits[HASH_DIGITS]

cdef char[MOST_TEXT] text       # the hash's input
cdef uint16_t[MOST_NUMBERS] numbers         # the list in hand
cdef Kept[2 * N_PAIRS] pairs    # pairs by place_of, the newer list first
cdef const char *HEX = b"0123456789abcdef"


cdef int write_ja4(char *out, const ClientHello *hello) except -1:
    return write_hashed(out, hello, False)


cdef bytes make_ja4(const ClientHello *hello, bint original, bint raw):
    cdef char[JA4_BYTES] hashed
    cdef char *p
    cdef int n
    if not raw:
        write_hashed(hashed, hello, original)
        return hashed[:JA4_BYTES]
    n = list_ciphers(hello, original)
    put_summary(text, hello, n)
    p = put_list(text + 11, n, n)
    p[0] = c'_'
    n = list_extensions(hello, original)
    p = put_list(p + 1, n, add_signatures(n, hello) if n else 0)
    return text[:min(p - text, <Py_ssize_t>MOST_RAW)]


cdef int write_hashed(char *out, const ClientHello *hello, bint original) except -1:
    cdef int ciphers = list_ciphers(hello, original)
    cdef int extensions
    put_hash(out + 11, ciphers, ciphers)
    extensions = list_extensions(hello, original)
    put_hash(out + 24, extensions, add_signatures(extensions, hello) if extensions else 0)
    put_summary(out, hello, ciphers)
    out[23] = c'_'
    return 0


cdef void put_summary(char *out, const ClientHello *hello, int ciphers) noexcept nogil:
    out[0] = c't'
    put_version(out + 1, hello.version)
    out[3] = c'i' if hello.name_kind == NO_NAME else c'd'
    put_count(out + 4, ciphers)
    put_count(out + 6, count_extensions(hello))
    put_alpn(out + 8, &hello.alpn)
    out[10] = c'_'


cdef int list_ciphers(const ClientHello *hello, bint original) noexcept nogil:
    cdef int n = 0
    cdef size_t i
    for i in range(0, hello.ciphers.n, 2):
        numbers[n] = <uint16_t>(hello.ciphers.at[i] << 8 | hello.ciphers.at[i + 1])
        n += not is_grease(numbers[n])
    if not original:
        sort(n)
    return n


cdef int list_extensions(const ClientHello *hello, bint original) noexcept nogil:
    """If sorted, without the two that depend on the destination, not on the client."""
    cdef const uint8_t *p = hello.extensions.at
    cdef const uint8_t *end = p + hello.extensions.n
    cdef int n = 0
    while p < end:
        numbers[n] = <uint16_t>(p[0] << 8 | p[1])
        n += not is_grease(numbers[n]) and (
            original or numbers[n] != SERVER_NAME and numbers[n] != ALPN)
        p += 4 + (p[2] << 8 | p[3])
    if not original:
        sort(n)
    return n


cdef int count_extensions(const ClientHello *hello) noexcept nogil:
    cdef const uint8_t *p = hello.extensions.at
    cdef const uint8_t *end = p + hello.extensions.n
    cdef int n = 0
    while p < end:
        n += not is_grease(p[0] << 8 | p[1])
        p += 4 + (p[2] << 8 | p[3])
    return n


cdef void sort(int n) noexcept nogil:
    """`numbers`, by insertion: a client's list has 5 to 60 of them. A longer one by qsort,
    because 8000 would take 10 ms."""
    cdef int i, j
    cdef uint16_t number
    if n > FEW:
        qsort(numbers, n, sizeof(uint16_t), compare)
        return
    for i in range(1, n):
        number = numbers[i]
        j = i
        while j and numbers[j - 1] > number:
            numbers[j] = numbers[j - 1]
            j -= 1
        numbers[j] = number


cdef int compare(const void *a, const void *b) noexcept nogil:
    return <int>(<const uint16_t *>a)[0] - <int>(<const uint16_t *>b)[0]


cdef int add_signatures(int n, const ClientHello *hello) noexcept nogil:
    """In the client's order. Returns how many `numbers` there are now."""
    cdef size_t i
    for i in range(0, hello.signatures.n, 2):
        numbers[n] = <uint16_t>(hello.signatures.at[i] << 8 | hello.signatures.at[i + 1])
        n += not is_grease(numbers[n])
    return n


cdef int put_hash(char *out, int n_sorted, int n) except -1:
    """Writes the first digits of the SHA-256 of `numbers`; zeros if there are none."""
    cdef Kept *pair = NULL
    cdef bytes digest
    cdef int i
    if n == 0:
        memset(out, c'0', HASH_DIGITS)
        return 0
    if n <= MOST_KEPT:
        pair = &pairs[2 * place_of(n)]
        for i in range(2):
            if pair[i].n == n and pair[i].n_sorted == n_sorted and (
                    memcmp(pair[i].numbers, numbers, n * sizeof(uint16_t)) == 0):
                memcpy(out, pair[i].digits, HASH_DIGITS)
                return 0
    digest = sha256(text[:put_list(text, n_sorted, n) - text]).digest()
    put_digits(out, digest, HASH_DIGITS // 2)
    if pair != NULL:
        pair[1] = pair[0]
        pair.n = <uint16_t>n
        pair.n_sorted = <uint16_t>n_sorted
        memcpy(pair.numbers, numbers, n * sizeof(uint16_t))
        memcpy(pair.digits, out, HASH_DIGITS)
    return 0


cdef int place_of(int n) noexcept nogil:
    """Two lists may share a place: Chromium's do. A sum, because the compiler adds several
    numbers at a time."""
    cdef uint32_t total = <uint32_t>n
    cdef int i
    for i in range(n):
        total += <uint32_t>numbers[i] * <uint32_t>(2 * i + 1)
    return <int>(total * 0x9e3779b1u >> 16 & (N_PAIRS - 1))


cdef char *put_list(char *p, int n_sorted, int n) noexcept nogil:
    """`numbers` in four digits each: 0005,000a_0403,0804"""
    cdef int i
    for i in range(n):
        if i:
            p[0] = c'_' if i == n_sorted else c','
            p += 1
        p[0] = HEX[numbers[i] >> 12]
        p[1] = HEX[numbers[i] >> 8 & 15]
        p[2] = HEX[numbers[i] >> 4 & 15]
        p[3] = HEX[numbers[i] & 15]
        p += 4
    return p


cdef void put_digits(char *out, const char *data, int n) noexcept nogil:
    cdef int i
    for i in range(n):
        out[2 * i] = HEX[<uint8_t>data[i] >> 4]
        out[2 * i + 1] = HEX[data[i] & 15]


cdef void put_version(char *out, int version) noexcept nogil:
    out[0] = out[1] = c'0'
    if 0x0301 <= version <= 0x0304:
        out[0] = c'1'
        out[1] = <char>(c'0' + version - 0x0301)
    elif version == 0x0300:
        out[0], out[1] = c's', c'3'


cdef void put_count(char *out, int n) noexcept nogil:
    n = min(n, 99)
    out[0] = <char>(c'0' + n // 10)
    out[1] = <char>(c'0' + n % 10)


cdef void put_alpn(char *out, const Span *alpn) noexcept nogil:
    """The first and last character of the first protocol; if one of them is not alphanumeric,
    the first and last digit of its bytes in hexadecimal."""
    cdef uint8_t first, last
    if alpn.n == 0:
        out[0] = out[1] = c'0'
        return
    first = alpn.at[1]
    last = alpn.at[alpn.at[0]]
    if is_alphanumeric(first) and is_alphanumeric(last):
        out[0], out[1] = <char>first, <char>last
    else:
        out[0], out[1] = HEX[first >> 4], HEX[last & 15]


cdef inline bint is_alphanumeric(uint8_t c) noexcept nogil:
    return is_class(c, CC_DIGIT) or c'a' <= c | 32 <= c'z'


cdef int write_ja3(char *out, const ClientHello *hello) except -1:
    cdef char *p = text + put_number(text, hello.legacy_version)
    cdef bytes digest
    p[0] = c','
    p = put_decimals(p + 1, &hello.ciphers, 2)
    p[0] = c','
    p = put_types(p + 1, hello)
    p[0] = c','
    p = put_decimals(p + 1, &hello.groups, 2)
    p[0] = c','
    p = put_decimals(p + 1, &hello.formats, 1)
    digest = md5(text[:p - text], usedforsecurity=False).digest()
    put_digits(out, digest, JA3_BYTES // 2)
    return 0


cdef char *put_decimals(char *p, const Span *span, int size) noexcept nogil:
    cdef char *begin = p
    cdef size_t i
    cdef int number
    for i in range(span.n // size):
        number = span.at[i] if size == 1 else span.at[2 * i] << 8 | span.at[2 * i + 1]
        if size == 1 or not is_grease(number):
            p = put_decimal(p, number, p == begin)
    return p


cdef char *put_types(char *p, const ClientHello *hello) noexcept nogil:
    cdef char *begin = p
    cdef const uint8_t *at = hello.extensions.at
    cdef const uint8_t *end = at + hello.extensions.n
    while at < end:
        if not is_grease(at[0] << 8 | at[1]):
            p = put_decimal(p, at[0] << 8 | at[1], p == begin)
        at += 4 + (at[2] << 8 | at[3])
    return p


cdef inline char *put_decimal(char *p, int number, bint is_first) noexcept nogil:
    if not is_first:
        p[0] = c'-'
        p += 1
    return p + put_number(p, number)
