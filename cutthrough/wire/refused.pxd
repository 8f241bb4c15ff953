"""The description of a refused target, for the client and for logs (R37)."""

from libc.stdint cimport uint32_t
from cutthrough.wire.http1 cimport Head

# Returns the Hint (see reply) for a head with BAD_TARGET.
cdef int hint_of(const Head *head, const char *buf) noexcept nogil
# Writes `METHOD TARGET` of a head with a refused target, for a log: possible credentials are
# replaced (R37). `out` needs room for the line and 3 bytes more. Returns bytes written; the
# target is the last *n of them.
cdef uint32_t show_refused(char *out, const Head *head, const char *buf,
                           uint32_t *n) noexcept nogil
