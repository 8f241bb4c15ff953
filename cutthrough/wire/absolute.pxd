"""A rewritten request head in absolute form, for a parent that gets the request itself."""

from cutthrough.wire.connect cimport Value
from cutthrough.wire.authority cimport Target
from cutthrough.wire.rewrite cimport Span

# From a head of rewrite.build_request_head, `n` bytes with this path. Returns bytes written; 0:
# `cap` is too small.
cdef size_t build_absolute_head(char *out, size_t cap, const char *head, size_t n,
                                Span path, const Target *target,
                                Value credentials) noexcept nogil
