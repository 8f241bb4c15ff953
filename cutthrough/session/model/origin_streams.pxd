"""Connections to origins whose bytes are streams: each request has a stream of its own."""

cimport cython
from libc.stdint cimport int64_t
from cutthrough.net.connector cimport Upstream, UpstreamOwner
from cutthrough.net.multiplex cimport Multiplexer
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.idle_pool cimport IdlePool
from cutthrough.session.model.turns cimport Turn


@cython.no_gc
cdef class OriginStream(Upstream):
    """A stream of a carrier, as a connection to the origin that one request has."""
    cdef Carrier carrier                # None: closed


@cython.no_gc
cdef class Carrier(UpstreamOwner):
    """A connection to an origin, which its streams share. Only `conn` is in the poller."""
    cdef Upstream conn                  # None: it has ended
    cdef Carriers table
    cdef object key                     # of the table's list; None: it is in none
    cdef bint is_private                # has had its one request
    cdef Turn turn                      # others wait for its first frame; None: nobody does
    cdef bint is_begun                  # the peer's first frame has come
    cdef int64_t heard_us               # when the peer was heard last
    cdef int64_t asked_us               # when the first stream since then began

    cdef OriginStream ask(self)
    cdef int run(self) except -1
    cdef int serve(self, const Multiplexer *m) except -1
    cdef int settle(self, const Multiplexer *m) except -1
    cdef int end(self, int why) except -1
    cdef int after_close(self) except -1
    cdef int note_first(self, const Multiplexer *m) except -1
    cdef int end_turn(self) except -1

cdef class Carriers:
    """A worker's carriers, and those that later requests may share, by the idle pool's key."""
    cdef dict by_key                    # key -> list of Carrier
    cdef set all                        # of Carrier
    # Of origins that have chosen HTTP/2: key -> how many requests they take at a time
    cdef dict known
    cdef dict turns                     # key -> the Turn that others may wait for
    cdef int64_t idle_ms, connect_ms, alive_us
    cdef IdlePool pool                  # its bounds are these carriers', too
    # Those in by_key without a stream, the one that has waited longest first: Carrier -> None
    cdef dict idle
    cdef dict idle_of                   # key -> how many

    # It has no stream. False: the pool would not keep a connection.
    cdef bint rest(self, Carrier carrier) except -1
    # It has one again, or ends.
    cdef int wake(self, Carrier carrier) except -1
    cdef OriginStream find(self, Client client, object key)
    cdef bint may_be_gone(self, Carrier carrier, bint only_once) noexcept
    cdef Carrier find_new(self, object key)
    # Ends those without a stream, to give descriptors. Returns how many.
    cdef int give_up(self) except -1
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
# Whether the client waits for a connection that another request is about to share; if not, others
# may wait for this one's.
cdef bint takes_turns(Client client) except -1
# The origin has chosen HTTP/1.1: nobody waits for its connections.
cdef int note_http1(Client client) except -1
# The origin has not read the request, and says so.
cdef bint is_unread(Client client) noexcept
# It has not, and nothing but its head was sent.
cdef bint may_ask_again(Client client) noexcept
# It has not, and all that was sent is the pump's again, to be sent to another one.
cdef bint take_back(Client client) noexcept
# Whether the request needs bytes both ways, which no stream is.
cdef bint needs_connection(Client client) noexcept
