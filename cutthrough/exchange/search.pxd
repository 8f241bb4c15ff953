"""Octets that are searched for in a text."""

cdef bint has_part(tuple parts, const char *data, size_t n) noexcept
