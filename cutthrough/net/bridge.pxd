"""A kernel's socket in front of a transport, if a layer needs one below it: TLS inside TLS."""

cimport cython
from libc.stdint cimport int64_t
from cutthrough.net.connector cimport Upstream, UpstreamOwner
from cutthrough.net.poller cimport Endpoint
from cutthrough.net.relay cimport Relay


@cython.no_gc
cdef class Bridge(UpstreamOwner):
    """Has the transport's socket; the bytes that it relays go through `pier`."""
    cdef Relay relay
    cdef Upstream pier      # our end of the pair
    cdef Endpoint user      # has the other end; None: it has closed
    cdef object key         # of the table
    cdef int64_t linger_ms
    cdef int64_t untaken_before     # by the transport's peer, at the last look
    cdef int64_t taken_before

# From now on the endpoint's socket is one of the kernel, and its transport is behind it.
# `linger_ms`: how long the transport may take for the last bytes. Returns 0, or the errno for want
# of descriptors, and nothing has changed; EINVAL: the endpoint has lost its socket.
cdef int put_bridge(Endpoint user, int64_t linger_ms) except -1
# As Multiplexer.taken_before, of a stream or of what is behind a bridge; 0: the endpoint has
# nothing in front of it.
cdef int64_t taken_in_front(Endpoint user, int64_t *left) noexcept
