"""A rewritten request head in absolute form, for a parent that gets the request itself."""

from libc.stdint cimport uint32_t
from cutthrough.wire.connect cimport Value
from cutthrough.wire.authority cimport Target

# From a head of rewrite.build_request_head, `n` bytes with the path at `path_at`. Returns bytes
# written; 0: `cap` is too small.
cdef size_t build_absolute_head(char *out, size_t cap, const char *head, size_t n,
                                uint32_t path_at, uint32_t path_len, const Target *target,
                                Value credentials) noexcept nogil
