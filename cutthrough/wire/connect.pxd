"""CONNECT to a parent that is an HTTP proxy: the request, and the head of its answer (R3)."""

from cutthrough.wire.authority cimport Target

cdef enum:
    MOST_CONNECT_ANSWER = 65536     # octets of the answer's heads, the interim ones included

# A value of a field; NULL: no such field. It has no line end and no control character.
cdef struct Value:
    const char *text
    size_t n

# Writes the request: target, Host, and these fields. Returns bytes written; 0: `cap` is too
# small.
cdef size_t build_connect(char *out, size_t cap, const Target *target, Value credentials,
                          Value via) noexcept nogil
# > 0: length of the heads, the final one included; *status is the final head's. 0: more is
# needed; -1: no valid answer. No body is read: the bytes behind a 2xx head are the tunnel's
# (RFC 9110 section 9.3.6). May write into `data`.
cdef int read_connect_answer(char *data, size_t n, int *status) noexcept nogil
