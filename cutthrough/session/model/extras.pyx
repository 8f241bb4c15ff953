# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fields of a client that few requests need, because thousands of clients are at rest."""

cimport cython
from libc.stdlib cimport free
from cutthrough.net.buffers cimport give_block


# Every dial has its own for as long as it takes
@cython.freelist(64)
@cython.no_gc
cdef class Extras:

    def __dealloc__(self):
        give_block(&self.partial)
        free(self.opening)


NOTHING = Extras.__new__(Extras)


cdef int end_responders(Extras extras, str label) except -1:
    if extras.filtering is not None:
        extras.filtering.end(label)
    if extras.replay is not None:
        extras.replay.end(label)
    return 0


cdef int forget_responders(Extras extras) except -1:
    extras.filtering = extras.replay = None
    extras.up = extras.down = None
    return 0
