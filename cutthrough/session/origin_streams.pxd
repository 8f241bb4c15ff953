"""Connections to origins whose bytes are streams: each request has a stream of its own."""

cimport cython
from libc.stdint cimport int64_t
from cutthrough.net.connector cimport Stream, StreamOwner
from cutthrough.net.multiplex cimport Multiplexer
from cutthrough.session.client cimport Client


@cython.no_gc
cdef class OriginStream(Stream):
    """A stream of a carrier, as a connection to the origin that one request has."""
    cdef Carrier carrier                # None: closed


@cython.no_gc
cdef class Carrier(StreamOwner):
    """A connection to an origin, which its streams share. Only `conn` is in the poller."""
    cdef Stream conn                    # None: it has ended
    cdef Carriers table
    cdef object key                     # of the table's list; None: it is in none
    cdef bint is_private                # has had its one request

    cdef OriginStream ask(self)
    cdef int run(self) except -1
    cdef int serve(self, const Multiplexer *m) except -1
    cdef int settle(self, const Multiplexer *m) except -1
    cdef int end(self, int why) except -1
    cdef int after_close(self) except -1

cdef class Carriers:
    """A worker's carriers, and those that later requests may share, by the idle pool's key."""
    cdef dict by_key                    # key -> list of Carrier
    cdef set all                        # of Carrier
    cdef int64_t idle_ms, connect_ms

    cdef OriginStream find(self, object key)
    cdef int forget(self, Carrier carrier) except -1

# Has the handshake of client.origin agreed on streams?
cdef bint has_streams(Client client) noexcept
# client.origin is from now on a stream of the connection that it was. False: no memory; then it
# is what it was.
cdef bint carry(Client client) except -1
# Later requests of client's key may have streams of the connection that client.origin is of.
cdef int share(Client client) except -1
# A stream for this request, of a connection that is shared; None: there is none.
cdef OriginStream take_stream(Client client)
# The origin has not read the request, and says so; nothing but its head was sent.
cdef bint may_ask_again(Client client) noexcept
# Whether the request needs bytes both ways, which no stream is.
cdef bint needs_connection(Client client) noexcept
