# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012).

If an attacker has no key, two values cannot be made to collide, and the time of a look-up reveals
nothing about the stored values.
"""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy


cdef inline uint64_t rotate(uint64_t x, int by) noexcept nogil:
    return (x << by) | (x >> (64 - by))


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotate(v[1], 13) ^ v[0]
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] = rotate(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotate(v[1], 17) ^ v[2]
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] = rotate(v[2], 32)


cdef void keyed_hash(const uint64_t *key, const unsigned char *data, size_t n,
                     uint64_t *out) noexcept nogil:
    """SipHash-2-4-128 of the data, as the reference implementation defines it."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef size_t i, _i
    v[0] = 0x736f6d6570736575ULL ^ key[0]
    v[1] = 0x646f72616e646f6dULL ^ key[1] ^ 0xee
    v[2] = 0x6c7967656e657261ULL ^ key[0]
    v[3] = 0x7465646279746573ULL ^ key[1]
    for i in range(n // 8):
        memcpy(&word, data + 8 * i, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
    word = <uint64_t>n << 56
    for i in range(n % 8):
        word |= <uint64_t>data[n - n % 8 + i] << (8 * i)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xee
    for _i in range(4):
        sip_round(v)
    out[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    for _i in range(4):
        sip_round(v)
    out[1] = v[0] ^ v[1] ^ v[2] ^ v[3]
