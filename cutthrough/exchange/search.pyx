# cython: language_level=3, boundscheck=False, wraparound=False
"""Octets that are searched for in a text.

Each captured answer is searched for the secrets of its request. Python's `in` took 140 to
390 µs for 256 KiB, memmem takes 24 to 47. Of many words, Words finds all in one pass.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

cdef extern from "string.h":
    void *memmem(const void *data, size_t n, const void *part, size_t n_part) noexcept

cdef enum:
    MOST_WORK = 1 << 28             # octets times parts: some 50 ms
    # In the same unit
    OF_PLACE = 5
    OF_COMPARISON = 12              # and each octet beyond the first ones counts
    FEW = 16

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(str text, Py_ssize_t *n) except NULL


cdef bint has_part(tuple parts, const char *data, size_t n) noexcept:
    """`parts`: bytes."""
    cdef bytes part
    for part in parts:
        if memmem(data, n, PyBytes_AS_STRING(part), PyBytes_GET_SIZE(part)) != NULL:
            return True
    return False


def has_any(tuple parts not None, data not None):
    """May the text have one of these? Yes, too, if to look would be too much work. `data`:
    bytes, or a str without halves of characters, which is looked at in UTF-8."""
    cdef Py_ssize_t n = 0
    cdef const char *text
    if isinstance(data, str):
        text = PyUnicode_AsUTF8AndSize(data, &n)
    else:
        text, n = PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
    return n * len(parts) > MOST_WORK or has_part(parts, text, n)


cdef struct _Word:
    const char *data
    Py_ssize_t n
    Py_ssize_t shorter              # the longest of the others that this one begins with; -1: none


cdef class Words:
    """Words that are searched for together: a pass takes as long as the text, whatever their
    number. `work` is what all passes have taken, in octets times parts."""
    cdef list _kept                 # sorted, the memory of the others
    cdef _Word *_words
    cdef Py_ssize_t _count
    cdef uint8_t[8192] _begins      # a bit for each first two octets
    cdef readonly Py_ssize_t longest

    def __cinit__(self, words not None):
        cdef Py_ssize_t i, at, top = -1
        cdef bytes word
        self._kept = sorted(set(words))
        self._count = len(self._kept)
        self._words = <_Word *>malloc((self._count + 1) * sizeof(_Word))
        if self._words == NULL:
            raise MemoryError
        memset(self._begins, 0, 8192)
        for i in range(self._count):
            word = self._kept[i]
            self._words[i].data, self._words[i].n = word, len(word)
            self.longest = max(self.longest, len(word))
            while top >= 0 and not begins(
                    word, len(word), self._words[top].data, self._words[top].n):
                top = self._words[top].shorter
            self._words[i].shorter = top
            top = i
            if len(word) < 2:       # each second octet
                for at in range(32):
                    if len(word):
                        self._begins[(<uint8_t>word[0] << 5) + at] = 0xff
            else:
                at = <uint8_t>word[0] << 8 | <uint8_t>word[1]
                self._begins[at >> 3] |= 1 << (at & 7)

    def __dealloc__(self):
        free(self._words)

    def __len__(self):
        return self._count

    def find(self, bytes data not None, Py_ssize_t begin, int64_t most):
        """(begin, end, work) of the first place from `begin` on, of the longest word there; begin
        is -1 if there is none, and -2 if to look takes more work than `most`."""
        cdef const char *text = data
        cdef Py_ssize_t n = len(data), i, at
        cdef int64_t work = 0
        cdef int first
        for i in range(begin, n):
            work += OF_PLACE
            if i + 1 < n:
                first = <uint8_t>text[i] << 8 | <uint8_t>text[i + 1]
                if not self._begins[first >> 3] & 1 << (first & 7):
                    continue
            at = self._behind(text + i, n - i, &work) - 1
            while at >= 0 and order(&self._words[at], text + i, n - i, &work) != 0:
                at = self._words[at].shorter
            if work > most:
                return -2, -2, work
            if at >= 0 and self._words[at].n:
                return i, i + self._words[at].n, work
        return (-2 if work > most else -1), -1, work

    def begun(self, bytes data not None, int64_t most):
        """(size, work): the number of octets at the end, if a longer word begins with them; -1 if
        to look takes more work than `most`."""
        cdef const char *text = data
        cdef Py_ssize_t n = len(data), i, at
        cdef int64_t work = 0
        for i in range(max(0, n - self.longest + 1), n):
            at = self._behind(text + i, n - i, &work)
            if work > most:
                return -1, work
            if at < self._count and is_begun(&self._words[at], text + i, n - i, &work):
                return n - i, work
        return 0, work

    cdef Py_ssize_t _behind(self, const char *text, Py_ssize_t n, int64_t *work) noexcept:
        """The first word that is greater than the text."""
        cdef Py_ssize_t low = 0, high = self._count, middle
        while low < high:
            middle = (low + high) >> 1
            if order(&self._words[middle], text, n, work) > 0:
                high = middle
            else:
                low = middle + 1
        return low


cdef bint is_begun(const _Word *word, const char *text, Py_ssize_t n, int64_t *work) noexcept:
    cdef Py_ssize_t first = min(n, FEW)
    work[0] += OF_COMPARISON
    if word.n < n or memcmp(word.data, text, first) != 0:
        return False
    work[0] += n - first
    return memcmp(word.data + first, text + first, n - first) == 0


cdef int order(const _Word *word, const char *text, Py_ssize_t n, int64_t *work) noexcept:
    """0 if the text begins with the word; positive if the word is greater than the text."""
    cdef Py_ssize_t size = min(n, word.n)
    cdef Py_ssize_t first = min(size, FEW)
    cdef int result = memcmp(word.data, text, first)
    work[0] += OF_COMPARISON
    if result == 0 and first < size:
        work[0] += size
        result = memcmp(word.data + first, text + first, size - first)
    return result if result else word.n > n


cdef bint begins(const char *text, Py_ssize_t n, const char *word, Py_ssize_t n_word) noexcept:
    return n >= n_word and memcmp(text, word, n_word) == 0
