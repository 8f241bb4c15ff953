"""Numbered sets of globs for paths, for rules."""

from libc.stdint cimport uint32_t
from cutthrough.wire.paths cimport Path

cdef struct Glob:
    const char *text        # compiled, see globs.pyx; a NUL follows
    size_t n

cdef struct GlobSet:
    Glob *globs
    uint32_t n

# Number 0 is no condition.
cdef class GlobSets:
    cdef GlobSet *sets
    cdef readonly uint32_t n
    cdef readonly size_t bytes
    cdef dict numbers
    cdef list texts         # the compiled texts
    cdef int add(self, tuple globs) except -1
    # The number of this set of globs, a new number for a new set.
    cdef uint32_t number(self, tuple globs) except? 0
    # Does each reading of the path match a glob of the set; or, if `any_reading`, does one?
    # An unclear path is matched only if `any_reading` is set, an unknown path only if it is not,
    # because an unknown path refuses no request.
    cdef bint meets(self, uint32_t number, Path *path, bint any_reading) noexcept nogil
