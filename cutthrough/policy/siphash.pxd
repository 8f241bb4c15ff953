"""SipHash-2-4 with 128 bits of output."""

from libc.stdint cimport uint64_t

# `key` and `out` are two words each.
cdef void keyed_hash(const uint64_t *key, const unsigned char *data, size_t n,
                     uint64_t *out) noexcept nogil
