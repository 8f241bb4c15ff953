"""Idle connections to origins, kept for the next request."""

from libc.stdint cimport int64_t
from cutthrough.net.connector cimport Stream, StreamOwner
from cutthrough.policy.hop cimport Hop

cdef class Shelf:
    """Those of one key."""
    cdef object key
    cdef Stream newest                  # the one that was parked last
    cdef Py_ssize_t n

cdef class IdlePool(StreamOwner):
    cdef dict shelves                   # key -> Shelf
    cdef Py_ssize_t empty               # of these, without a connection
    cdef readonly Py_ssize_t idle
    cdef Py_ssize_t most, most_per_key
    cdef int64_t timeout_ms
    cdef readonly unsigned long discarded   # died, timed out, or found no place

    # A clean idle connection made so and for that, the caller's now; or None. It may have died since
    # the kernel was last heard: only for what can be sent twice.
    cdef Stream take(self, const Hop *hop, bytes destination)
    # Keeps it, or ends it when it is not clean or there is no place.
    cdef int park(self, Stream stream, const Hop *hop, bytes destination) except -1
    cdef int _unlink(self, Stream stream) except -1
    cdef int _sweep(self) except -1
