# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Who is it? Basic authentication (RFC 7617), for each request anew (R21-R23).

The scheme and the base64 are parsed exactly: one way only to write the same credentials.
What was verified is remembered under a keyed hash of the field's value, so that the
common request costs a hash and a look-up. The hash is SipHash-2-4 with 128 bits of output
and a key made at start (Aumasson and Bernstein, 2012): without the key nobody can make two
values meet, and time tells nothing about what is stored. Neither is a password kept: users
are held as salted SHA-256 digests, compared in constant time, unknown users included.
"""

import binascii
import hashlib
import hmac
import os

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from cutthrough.wire.http1 cimport equals_lower

cdef enum:
    VERIFIED_BOUND = 4096       # credentials remembered; then all are forgotten (R31)
    MOST_VALUE = 4096           # of a field value that is looked at


cdef class Authenticator:

    def __init__(self, users):
        """From {name: password}, both bytes. The passwords are not kept."""
        cdef bytes key = os.urandom(16)
        memcpy(self.key, <char *>key, 16)
        self.salt = os.urandom(16)
        self.users = {name: self._digest(secret) for name, secret in users.items()}
        self.no_digest = self._digest(os.urandom(16))
        self.verified = {}
        self.bound = VERIFIED_BOUND

    def _digest(self, bytes secret):
        return hashlib.sha256(self.salt + secret).digest()

    cdef tuple identify(self, const char *value, size_t n):
        cdef uint64_t out[2]
        if value == NULL:
            return (MISSING, None)
        if n > MOST_VALUE:
            return (REFUSED, None)
        keyed_hash(self.key, <const unsigned char *>value, n, out)
        tag = (<char *>out)[:16]
        found = self.verified.get(tag)
        if found is None:
            found = self._verify(value[:n])
            if found[0] == KNOWN:
                if len(self.verified) >= self.bound:
                    self.verified.clear()
                self.verified[tag] = found
        return found

    def _verify(self, bytes value):
        cdef const char *text = value
        if len(value) < 7 or not equals_lower(text, b"basic ", 6):
            return (REFUSED, None)          # another scheme (RFC 9110: 407 all the same)
        coded = value[6:].lstrip(b" ")
        try:
            pair = binascii.a2b_base64(coded)
        except binascii.Error:
            return (REFUSED, None)
        if binascii.b2a_base64(pair, newline=False) != coded:
            return (REFUSED, None)          # decoders skip and forgive: one spelling only
        name, colon, secret = pair.partition(b":")
        expected = self.users.get(name, self.no_digest)
        matches = hmac.compare_digest(self._digest(secret), expected)
        if colon and matches and expected is not self.no_digest:
            return (KNOWN, name)
        return (REFUSED, None)

    def check(self, value):
        """The user's name for a field value, or None; for tests and tools."""
        cdef const char *text = NULL
        cdef size_t n = 0
        if value is not None:
            text = value
            n = len(value)
        return self.identify(text, n)[1]


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


def siphash128(bytes key, bytes data):
    """The keyed hash, for its test vectors. 16 bytes of key, 16 of hash."""
    cdef uint64_t k[2]
    cdef uint64_t out[2]
    memcpy(k, <char *>key, 16)
    keyed_hash(k, data, len(data), out)
    return (<char *>out)[:16]
