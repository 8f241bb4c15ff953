"""Dates in fields: IMF-fixdate (RFC 9110 section 5.6.7)."""

from libc.stdint cimport int64_t

cdef enum:
    DATE_BYTES = 29         # "Sun, 06 Nov 1994 08:49:37 GMT"

# Writes DATE_BYTES bytes, no NUL. `epoch_s` is seconds since 1970, up to year 9999.
cdef void build_date(char *out, int64_t epoch_s) noexcept nogil
