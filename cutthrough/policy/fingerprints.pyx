# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Numbered sets of JA4 fingerprints: t13d1516h2_8daaf6152771_e5627efa2ab1, or `*` for a part.

A set is a sorted array of patterns in C memory, each as long as a fingerprint: a starred part
is filled with `*`. A look-up blanks the same parts of the fingerprint, for each combination
that the set uses, and searches the array.
"""

import re

from libc.stdint cimport uint8_t, uint32_t
from libc.stdlib cimport bsearch, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset
from cutthrough.wire.fingerprints cimport JA4_BYTES

cdef enum:
    COMBINATIONS = 8            # of three parts, starred or not

_PATTERN = re.compile(
    r"(t(?:s3|00|1[0-3])[di][0-9]{4}[0-9A-Za-z]{2}|\*)_([0-9a-f]{12}|\*)_([0-9a-f]{12}|\*)")
# Begin and length of each part
cdef int[3] begins = [0, 11, 24]
cdef int[3] lengths = [10, 12, 12]


def parse_fingerprint(text):
    """Returns the pattern as it is. Raises ValueError."""
    if not _PATTERN.fullmatch(text) or text == "*_*_*":
        raise ValueError(f"{text!r} is no JA4 such as t13d1516h2_8daaf6152771_e5627efa2ab1, "
                         "with * for one or two of its parts")
    return (text,)


cdef class FingerprintSets:

    def __cinit__(self):
        self.numbers = {(): 0}
        self.n = 1
        self.sets = <Set *>malloc(sizeof(Set))
        if self.sets == NULL:
            raise MemoryError
        memset(self.sets, 0, sizeof(Set))

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.n):
            free(self.sets[i].keys)
        free(self.sets)

    cdef uint32_t number(self, tuple patterns) except? 0:
        number = self.numbers.get(patterns)
        if number is None:
            number = self.numbers[patterns] = self.n
            self.add(patterns)
        return number

    cdef int add(self, tuple patterns) except -1:
        cdef Set ja4_set
        cdef Set *sets
        cdef size_t i
        cdef bytes key
        keys = sorted({key_of(text) for text in patterns})
        ja4_set.n = <uint32_t>len(keys)
        ja4_set.masks = 0
        for text in patterns:
            ja4_set.masks |= <uint8_t>(1 << <int>mask_of(text))
        sets = <Set *>realloc(self.sets, (self.n + 1) * sizeof(Set))
        if sets == NULL:
            raise MemoryError
        self.sets = sets
        ja4_set.keys = <char *>malloc(len(keys) * JA4_BYTES + 1)
        if ja4_set.keys == NULL:
            raise MemoryError
        for i, key in enumerate(keys):
            memcpy(ja4_set.keys + i * JA4_BYTES, <const char *>key, JA4_BYTES)
        self.sets[self.n] = ja4_set
        self.n += 1
        return 0

    cdef bint contains(self, uint32_t number, const char *ja4) noexcept nogil:
        cdef const Set *ja4_set = &self.sets[number]
        cdef char[JA4_BYTES] key
        cdef int mask, part
        for mask in range(COMBINATIONS):
            if not ja4_set.masks >> mask & 1:
                continue
            memcpy(key, ja4, JA4_BYTES)
            for part in range(3):
                if mask >> part & 1:
                    memset(key + begins[part], c"*", lengths[part])
            if bsearch(key, ja4_set.keys, ja4_set.n, JA4_BYTES, compare) != NULL:
                return True
        return False


cdef int compare(const void *a, const void *b) noexcept nogil:
    return memcmp(a, b, JA4_BYTES)


def key_of(text):
    parts = text.split("_")
    return "_".join([part if part != "*" else "*" * lengths[<int>i]
                     for i, part in enumerate(parts)]).encode()


def mask_of(text):
    return sum([1 << i for i, part in enumerate(text.split("_")) if part == "*"])
