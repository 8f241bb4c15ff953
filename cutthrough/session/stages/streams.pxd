"""A connection whose bytes are streams: each stream is a session of its own."""

from cutthrough.session.model.client cimport Client

# Has the handshake of its transport agreed on streams?
cdef bint carries_streams(Client client) noexcept
# From now on it is a carrier, in state STREAMS. It must have no bytes in hand.
cdef int begin_streams(Client client) except -1
# An event at a carrier.
cdef int run_streams(Client client) except -1
# Its deadline, or a drain. 1: it has ended, or has a new deadline.
cdef int close_idle_streams(Client client) except -1
# It is closed next.
cdef int lose_streams(Client client) except -1
