"""Outgoing connections: a stream, and the way to get one to a name's addresses."""

cimport cython
from libc.stdint cimport int64_t, uint8_t
from cutthrough.net.address cimport Address, Addresses
from cutthrough.net.poller cimport Endpoint, Poller


@cython.no_gc
cdef class StreamOwner(Endpoint):
    """Whoever is told about a stream. Filled in by the room above."""
    cdef int on_stream(self, Stream stream) except -1
    cdef int on_stream_deadline(self, Stream stream) except -1
    # The outcome of a dial: a connected stream that is the owner's now, or None and an
    # errno. ETIMEDOUT: the deadline came. 0: no address was allowed. Else every attempt
    # failed, and it is the most telling of their errors.
    cdef int on_dialled(self, Connector connector, Stream stream, int error) except -1
    # May this address be connected to? Asked before each attempt (R26).
    cdef bint may_dial(self, const Address *address) except -1


@cython.no_gc
cdef class Stream(Endpoint):
    """An outgoing TCP connection. Its owner may change: a session, the idle pool."""
    cdef StreamOwner owner
    cdef Connector connector        # while it is being made
    cdef Address address
    cdef uint8_t reused
    cdef object shelf               # of the idle pool, while it waits there; else None
    cdef Stream older, newer        # its neighbours there, or among a dial's attempts

cdef class Connector:
    """One dial: a race of attempts to a name's addresses, one deadline for them all."""
    cdef StreamOwner owner          # None: it has been answered, or cancelled
    cdef Poller poller
    cdef Addresses addresses
    cdef Address tried              # the last one that was dialled; family 0: none yet
    cdef int port, i, error         # i: the next address
    cdef int open                   # attempts under way
    cdef int64_t deadline_ms
    cdef Stream newest, oldest      # of these

    cdef int next(self) except -1
    cdef bint _try(self, int64_t left_ms) except -1
    cdef int on_attempt(self, Stream stream) except -1
    cdef int on_attempt_deadline(self, Stream stream) except -1
    cdef int _end(self, Stream stream, int error) except -1
    cdef int _note(self, int error) except -1
    cdef int _unlink(self, Stream stream) except -1
    cdef int _answer(self, Stream stream, int error) except -1
    cdef int close(self) except -1

# Begins. The answer comes through owner.on_dialled, possibly before this returns; it
# returns the connector that cancel() takes, None when the answer has been given already.
cdef Connector dial(Poller poller, StreamOwner owner, Addresses addresses, int port,
                    int64_t timeout_ms)
cdef int cancel(Connector connector) except -1
