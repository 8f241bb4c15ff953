"""What can be said of a target that was refused: to its client, and in a log (R37)."""

from libc.stdint cimport uint32_t
from cutthrough.wire.http1 cimport Head

# Of a target that was BAD_TARGET: the Hint (see reply) at what is wrong with it.
cdef int hint_of(const Head *head, const char *buf) noexcept nogil
# Writes `METHOD TARGET` of a head whose target was refused, as a log may have it: without
# what may be credentials (R37). `out` has room for the line and 3 more; returns bytes
# written, the target is the last *n of them.
cdef uint32_t show_refused(char *out, const Head *head, const char *buf,
                           uint32_t *n) noexcept nogil
