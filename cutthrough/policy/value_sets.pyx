# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Numbered sets of texts that rules compare with: values of TLVs, fingerprints.

Equal sets of two rules are one. A look-up halves a sorted array.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memset


cdef class ValueSets:

    def __cinit__(self):
        self.numbers = {(): 0}
        self.texts = []
        self.n = 1
        self.sets = <Set *>malloc(sizeof(Set))
        if self.sets == NULL:
            raise MemoryError
        memset(self.sets, 0, sizeof(Set))

    def __dealloc__(self):
        cdef uint32_t i, j
        for i in range(self.n):
            for j in range(self.sets[i].n):
                free(self.sets[i].rows[j].values)
            free(self.sets[i].rows)
        free(self.sets)

    cdef uint32_t number(self, tuple written) except? 0:
        number = self.numbers.get(written)
        if number is None:
            number = self.numbers[written] = self.n
            self.add(self.read(written))
        return number

    cdef list read(self, tuple written):
        raise NotImplementedError       # each subclass reads its own values

    cdef int add(self, list rows) except -1:
        cdef Set *sets = <Set *>realloc(self.sets, (self.n + 1) * sizeof(Set))
        cdef Values *values
        cdef size_t i, j
        cdef bytes text
        if sets == NULL:
            raise MemoryError
        self.sets = sets
        values = <Values *>calloc(len(rows) + 1, sizeof(Values))
        if values == NULL:
            raise MemoryError
        sets[self.n] = Set(<uint32_t>len(rows), values)
        self.n += 1                     # from here on __dealloc__ frees it
        for i, (kind, texts) in enumerate(rows):
            values[i].kind = kind
            values[i].values = <Value *>malloc(len(texts) * sizeof(Value) + 1)
            if values[i].values == NULL:
                raise MemoryError
            values[i].n = <uint32_t>len(texts)
            for j, text in enumerate(sorted(texts)):
                self.texts.append(text)
                values[i].values[j] = Value(text, len(text))
        return 0


cdef bint has_value(const Values *values, const char *text, size_t n) noexcept nogil:
    cdef uint32_t low = 0, high = values.n, middle
    cdef int order
    while low < high:
        middle = (low + high) // 2
        order = compare(text, n, &values.values[middle])
        if order == 0:
            return True
        if order < 0:
            high = middle
        else:
            low = middle + 1
    return False


cdef int compare(const char *text, size_t n, const Value *value) noexcept nogil:
    """As Python orders bytes."""
    cdef int order = memcmp(text, value.text, min(n, value.n))
    if order or n == value.n:
        return order
    return -1 if n < value.n else 1
