"""Idle connections to origins, kept for the next request."""

cimport cython
from libc.stdint cimport int64_t
from cutthrough.net.connector cimport Upstream, UpstreamOwner
from cutthrough.policy.hop cimport Hop, is_plain_direct


@cython.no_gc
cdef class Berth:
    """The place of one connection in the pool; kept while it is used, for its next stay."""
    cdef Shelf shelf                    # None: it is used now
    cdef Upstream older, newer          # neighbours on the shelf
    cdef Upstream elder, younger        # neighbours in the pool, by time

cdef class Shelf:
    """The idle connections of one key."""
    cdef object key
    cdef Upstream newest                # the connection parked last
    cdef Py_ssize_t n

cdef class IdlePool(UpstreamOwner):
    cdef dict shelves                   # key -> Shelf
    cdef Py_ssize_t empty               # shelves without a connection
    cdef readonly Py_ssize_t idle
    cdef readonly Py_ssize_t streams    # idle connections of HTTP/2: see origin_streams
    cdef Upstream eldest, youngest      # of all shelves, by the time when they were parked
    cdef Py_ssize_t most, most_per_key
    cdef int last_fd
    cdef int64_t timeout_ms
    cdef readonly unsigned long discarded   # died, timed out, or found no place

    # A clean idle connection of this key (see make_key), the caller's from now on; or None. It may
    # have died since the kernel's last event: only for requests that can be sent twice.
    cdef Upstream take(self, object key)
    # Keeps it, in place of the eldest if the pool is full; or ends it if it is not clean, if there
    # are enough of its key, or if those of HTTP/2 have all places. `instead`: of an idle one of its
    # key, because its request would have taken none.
    cdef int park(self, Upstream upstream, object key, bint instead) except -1
    # Ends up to `most` connections, those that have waited longest; with a key those of the key
    # that were parked last. Returns how many.
    cdef int give_up(self, int most) except -1
    cdef int give_up_of(self, object key, int most) except -1
    # … to this hop, whatever is behind it.
    cdef int give_up_through(self, const Hop *hop, int most) except -1
    cdef int _end(self, Upstream upstream) except -1
    cdef Upstream _unlink(self, Upstream upstream)
    cdef int _sweep(self) except -1


cdef inline object make_key(const Hop *hop, bytes destination):
    """One key for each hop, TLS identity and destination. For most connections it is the
    destination's own object, so that no request makes an object."""
    if is_plain_direct(hop):
        return destination
    return ((<const char *>hop)[:sizeof(Hop)], destination)
