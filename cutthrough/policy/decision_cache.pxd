"""What a hook decided, kept for a while."""

from libc.stdint cimport int64_t

cdef class Decision:
    cdef readonly bint allow
    cdef readonly str reason        # a word for logs; "" where there is nothing to say
    cdef readonly double ttl        # seconds; 0: asked again each time
    cdef readonly str limits        # a name of the policy's limits, "" for the user's own
    cdef int64_t until_ms

cdef class DecisionCache:
    cdef dict kept                  # (user, canonical host and port) -> Decision
    cdef int bound
    cdef readonly unsigned long hits

    # What is known now, or None. No Python runs here.
    cdef Decision find(self, bytes user, bytes key, int64_t now_ms)
