"""Names of fields whose values are replaced, for the writer."""

cdef class Names:
    cdef list names                     # in lower case
    cdef bytes value
    cdef size_t most_of(self, const char *head, size_t size) noexcept
    cdef char *put(self, const char *head, size_t size, char *to) noexcept
    cdef const char *behind(self, const char *at, const char *end) noexcept
