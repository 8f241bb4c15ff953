# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fields of a client that few requests need, because thousands of clients are at rest."""

cimport cython


@cython.no_gc
cdef class Extras:
    pass


NOTHING = Extras.__new__(Extras)
