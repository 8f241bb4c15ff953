"""A cache of the hook's decisions."""

from libc.stdint cimport int64_t

cdef class Decision:
    cdef readonly bint allow
    cdef readonly str reason        # for logs; "": none
    cdef readonly double ttl        # seconds; 0: not cached
    cdef readonly str limits        # a name of the policy's limits, "": the user's own
    cdef readonly str tls           # "pass": its tunnel is not opened; "": as the rule says
    cdef int64_t until_ms           # when the cached decision expires

# A refusal for any other reason than a hook's, whatever the text: as much of it as a decision has
# goes to the log, with `?` for what is not printable ASCII
cdef Decision denial(str reason)

cdef class DecisionCache:
    cdef dict decisions             # (user, canonical host and port, fingerprints) -> Decision
    cdef int bound
    cdef readonly unsigned long hits
    cdef bint by_fingerprints       # the hook has read some

    # Returns the cached decision if it has not expired, else None. Runs no Python. `fingerprints`:
    # pairs; None: of decisions for which the hook has read none.
    cdef Decision find(self, bytes user, bytes key, int64_t now_ms, tuple fingerprints)
