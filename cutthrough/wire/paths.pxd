"""The path of a request, in each form that a server may read it in (R56; RFC 3986)."""

from libc.stdint cimport uint8_t

cdef enum:
    MOST_PATH = 4096        # bytes of a path; a longer one is unclear
    MOST_READINGS = 4       # sent or decoded, with or without parameters

cdef struct Path:
    const char *text        # as in the request, without the query; NULL: not known
    size_t n
    uint8_t is_read         # the fields below are set
    uint8_t n_readings      # 0: the path is unclear, see paths.pyx
    const char *readings[MOST_READINGS]     # valid until the next path is read
    size_t lengths[MOST_READINGS]

# Sets the readings from the text, which is known. A path with one reading, in canonical
# spelling, is not copied.
cdef void read_path(Path *path) noexcept nogil
# Sets the text from a target's path and query; NULL: not known. It stays the caller's.
cdef void set_path(Path *path, const char *text, size_t n) noexcept nogil
