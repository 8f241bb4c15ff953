# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Numbered sets of fingerprints: JA4's, t13d1516h2_8daaf6152771_e5627efa2ab1, and HTTP/2's,
1:65536;4:6291456|15663105|0|m,a,s,p; `*` for a part is any.

The patterns of a set that have the same parts starred are together. A look-up stars these parts of
the fingerprint, and looks for the result among them.
"""

import re

from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcpy
from cutthrough.policy.value_sets cimport ValueSets, has_value

cdef enum:
    MOST_PARTS = 4
    MOST_PATTERN = 260          # octets; http2.fingerprint makes no longer ones

_JA4 = re.compile(
    r"(t(?:s3|00|1[0-3])[di][0-9]{4}[0-9A-Za-z]{2}|\*)_([0-9a-f]{12}|\*)_([0-9a-f]{12}|\*)")
_HTTP2 = re.compile(
    r"((?:[0-9]+:[0-9]+(?:;[0-9]+:[0-9]+)*)?|\*)\|([0-9]+|\*)\|"
    r"([0-9]+:[01]:[0-9]+:[0-9]+(?:,[0-9]+:[01]:[0-9]+:[0-9]+)*|0|\*)\|"
    r"((?:[masp?](?:,[masp?])*)?|\*)")


def parse_fingerprint(text):
    """Returns the pattern of JA4 as it is. Raises ValueError."""
    if not _JA4.fullmatch(text) or text == "*_*_*":
        raise ValueError(f"{text!r} is no JA4 such as t13d1516h2_8daaf6152771_e5627efa2ab1, "
                         "with * for one or two of its parts")
    return (text,)


def parse_http2_fingerprint(text):
    """Returns the pattern as it is. Raises ValueError."""
    if not _HTTP2.fullmatch(text) or text == "*|*|*|*" or len(text) > <int>MOST_PATTERN:
        raise ValueError(f"{text!r} is no fingerprint of HTTP/2 such as "
                         "1:65536;3:1000;4:6291456|15663105|0|m,a,s,p, with * for some of its "
                         "parts")
    return (text,)


cdef class FingerprintSets(ValueSets):

    def __cinit__(self, separator):
        self.separator = ord(separator)

    cdef list read(self, tuple patterns):
        by_mask = {}
        for text in patterns:
            mask = sum([1 << i for i, part in enumerate(text.split(chr(self.separator)))
                        if part == "*"])
            by_mask.setdefault(mask, set()).add(text.encode())
        return list(by_mask.items())

    cdef bint contains(self, uint32_t number, const char *text, size_t n) noexcept nogil:
        cdef char[MOST_PATTERN + 1] key
        cdef uint32_t i
        cdef size_t n_key
        for i in range(self.sets[number].n if text != NULL else 0):
            n_key = star(key, text, n, self.separator, self.sets[number].rows[i].kind)
            if n_key and has_value(&self.sets[number].rows[i], key, n_key):
                return True
        return False


cdef size_t star(char *key, const char *text, size_t n, char separator, int mask) noexcept nogil:
    """Writes the fingerprint with these parts starred; returns the length. 0: it is longer
    than a pattern can be."""
    cdef const char *end = text + n
    cdef const char *mark
    cdef size_t length, written = 0
    cdef int part
    for part in range(<int>MOST_PARTS):
        mark = <const char *>memchr(text, separator, end - text)
        length = (end if mark == NULL else mark) - text
        if written + (1 if mask >> part & 1 else length) > <size_t>MOST_PATTERN:
            return 0
        if mask >> part & 1:
            key[written] = c"*"
            written += 1
        else:
            memcpy(key + written, text, length)
            written += length
        if mark == NULL:
            break
        key[written] = separator
        written += 1
        text = mark + 1
    return written
