"""Names of fields with values to replace, for the writer."""

from libc.stdint cimport uint64_t

cdef enum:
    MOST_VALUES = 101                   # one more than a request has fields

cdef struct Value:                      # of a field, in a head: its begin and its end
    size_t line, begin, end             # the field's line, too; without its end

cdef class Names:
    cdef list names                     # in lower case
    cdef bytes value
    cdef uint64_t lengths               # of the names, a bit each; the last: 63 and more
    cdef size_t most_of(self, const char *head, size_t size) noexcept
    cdef char *put(self, const char *head, size_t size, char *to) noexcept
    cdef int find(self, const char *head, size_t size, Value *values) noexcept
    cdef char *put_found(self, const char *head, size_t size, const Value *values, int n,
                         char *to) noexcept
    cdef const char *behind(self, const char *at, const char *end) noexcept
