"""`traceparent` of W3C Trace Context: which trace a request belongs to."""

from libc.stdint cimport uint64_t

cdef enum:
    TRACE_BYTES = 55            # VERSION-TRACE-PARENT-FLAGS, in hexadecimal
    MOST_TRACE = 256            # of a later version, which may say more

# The value of a head's only traceparent, and its bytes. NULL: it has none, or no valid one. The
# head has strict lines, and an empty one at its end.
cdef const char *find_trace(const char *head, size_t n, size_t *length) noexcept nogil
# Writes the value for a trace that begins here: TRACE_BYTES at `out`. Neither word of `trace` and
# no `span` may be 0.
cdef void print_trace(char *out, const uint64_t *trace, uint64_t span, bint sampled) noexcept nogil
# The head with a traceparent behind its other fields; None: it has a valid one already.
cdef bytes with_trace(const char *head, size_t n, const char *trace, size_t length)
