"""Outgoing connections: an upstream, and the dial that connects one to a name's addresses."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from cutthrough.net.address cimport Address, Addresses
from cutthrough.net.poller cimport Endpoint, Poller
from cutthrough.net.transport cimport Socket

cdef enum Leave:
    FAULT = -1
    FORBIDDEN = 0
    ALLOWED
    IF_PREPARED                     # after UpstreamOwner.prepare_socket


cdef enum:
    UNPREPARED = 1                  # a socket that its owner could not prepare


@cython.no_gc
cdef class UpstreamOwner(Endpoint):
    """Receives an upstream's events. Implemented by the layer above."""
    cdef int on_upstream(self, Upstream upstream) except -1
    cdef int on_upstream_deadline(self, Upstream upstream) except -1
    # An exception was caught at the upstream: must only close (R34).
    cdef int on_upstream_fault(self, Upstream upstream) except -1
    # The outcome of a dial: a connected upstream, which now belongs to the owner, or None and
    # an errno. ETIMEDOUT: the deadline came. 0: no address was allowed. Else every attempt
    # failed, and the errno is the most informative of their errors.
    cdef int on_dialled(self, Connector connector, Upstream upstream, int error) except -1
    # Whether a connection to this address is allowed. Called before each attempt (R26).
    cdef Leave may_dial(self, const Address *address) except FAULT
    # Prepares a socket before it connects to this address. False: it cannot be used.
    cdef bint prepare_socket(self, const Socket *s, const Address *address) except -1


@cython.no_gc
cdef class Upstream(Endpoint):
    """An outgoing TCP connection. Its owner changes: a dial, a session, the idle pool."""
    cdef UpstreamOwner owner
    cdef Address address
    cdef uint8_t reused
    cdef object berth               # in the idle pool, made when it is first parked; else None


@cython.no_gc
cdef class Connector(UpstreamOwner):
    """One dial: a race of attempts to a name's addresses, with one deadline for them all.

    No endpoint of the poller: it owns the attempts, and each has its own timer.
    """
    cdef UpstreamOwner owner        # None: answered or cancelled
    cdef Addresses addresses
    cdef Address tried              # the address dialled last; family 0: none yet
    cdef int port, i, error         # i: the next address's index
    cdef int64_t deadline_ms
    cdef list attempts              # under way, the oldest first; None: none was

    cdef int next(self) except -1
    cdef bint _try(self, int64_t left_ms) except -1
    cdef int _begin(self, Upstream upstream, Leave leave) except? UNPREPARED
    cdef int _end(self, Upstream upstream, int error) except -1
    cdef int _note(self, int error) except -1
    cdef int _answer(self, Upstream upstream, int error) except -1

# Begins a dial. The answer comes through owner.on_dialled, possibly before dial() returns.
# Returns the connector for cancel(), or None if the answer has been given already.
cdef Connector dial(Poller poller, UpstreamOwner owner, Addresses addresses, int port,
                    int64_t timeout_ms)
cdef int cancel(Connector connector) except -1
