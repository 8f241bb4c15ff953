# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Numbered sets of HTTP/2 fingerprints: 1:65536;4:6291456|15663105|0|m,a,s,p, or `*` for a part.

A look-up goes over the whole set, because a set has some tens of patterns, and most of them differ
in their first octets: 5 ns each.
"""

import re

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memset

cdef enum:
    MOST_PATTERN = 260          # octets; http2.fingerprint makes no longer ones

_PATTERN = re.compile(
    r"((?:[0-9]+:[0-9]+(?:;[0-9]+:[0-9]+)*)?|\*)\|([0-9]+|\*)\|"
    r"([0-9]+:[01]:[0-9]+:[0-9]+(?:,[0-9]+:[01]:[0-9]+:[0-9]+)*|0|\*)\|"
    r"((?:[masp?](?:,[masp?])*)?|\*)")


def parse_http2_fingerprint(text):
    """Returns the pattern as it is. Raises ValueError."""
    if not _PATTERN.fullmatch(text) or text == "*|*|*|*" or len(text) > <int>MOST_PATTERN:
        raise ValueError(f"{text!r} is no fingerprint of HTTP/2 such as "
                         "1:65536;3:1000;4:6291456|15663105|0|m,a,s,p, with * for some of its "
                         "parts")
    return (text,)


cdef class Http2PrintSets:

    def __cinit__(self):
        self.numbers = {(): 0}
        self.texts = []
        self.n = 1
        self.sets = <Set *>malloc(sizeof(Set))
        if self.sets == NULL:
            raise MemoryError
        memset(self.sets, 0, sizeof(Set))

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.n):
            free(self.sets[i].patterns)
        free(self.sets)

    cdef uint32_t number(self, tuple patterns) except? 0:
        number = self.numbers.get(patterns)
        if number is None:
            number = self.numbers[patterns] = self.n
            self.add(patterns)
        return number

    cdef int add(self, tuple patterns) except -1:
        cdef Set *sets = <Set *>realloc(self.sets, (self.n + 1) * sizeof(Set))
        cdef Pattern *rows
        cdef size_t i, j
        cdef bytes part
        if sets == NULL:
            raise MemoryError
        self.sets = sets
        rows = <Pattern *>calloc(len(patterns) + 1, sizeof(Pattern))
        if rows == NULL:
            raise MemoryError
        sets[self.n] = Set(rows, <uint32_t>len(patterns))
        self.n += 1                     # from here on __dealloc__ frees it
        for i, text in enumerate(patterns):
            for j, part in enumerate(text.encode().split(b"|")):
                if part != b"*":
                    self.texts.append(part)
                    rows[i].parts[j] = Part(part, len(part))
        return 0

    cdef bint contains(self, uint32_t number, const char *text, size_t n) noexcept nogil:
        cdef const Set *prints = &self.sets[number]
        cdef Part[PARTS] parts
        cdef uint32_t i
        if text == NULL or not split(parts, text, n):
            return False
        for i in range(prints.n):
            if meets(&prints.patterns[i], parts):
                return True
        return False


cdef bint split(Part *parts, const char *text, size_t n) noexcept nogil:
    cdef const char *end = text + n
    cdef const char *bar
    cdef int i
    for i in range(<int>PARTS):
        bar = <const char *>memchr(text, c"|", end - text) if i < PARTS - 1 else end
        if bar == NULL:
            return False
        parts[i] = Part(text, bar - text)
        text = bar + 1
    return True


cdef bint meets(const Pattern *pattern, const Part *parts) noexcept nogil:
    cdef int i
    for i in range(<int>PARTS):
        if pattern.parts[i].text != NULL and (
                pattern.parts[i].n != parts[i].n
                or memcmp(pattern.parts[i].text, parts[i].text, parts[i].n) != 0):
            return False
    return True
