"""The protocols of a listener, and its clients that need no credentials."""

from libc.stdint cimport uint32_t
from cutthrough.net.address cimport Address
from cutthrough.net.intercepted cimport Way
from cutthrough.policy.networks cimport NetworkSets
from cutthrough.session.model.prints cimport Prints

# Shared by the connections of a listener, and never changed; or the own one of a connection.
cdef class Entrance:
    cdef bint http
    cdef bint http2                 # if a TLS handshake agrees on it
    cdef bint socks5
    cdef bint socks4
    cdef bint udp                   # ASSOCIATE of SOCKS5
    cdef bint needs_user            # every client needs credentials
    cdef bytes user                 # of clients without credentials; None: nobody
    cdef bint is_for_all            # if not needs_user: no client needs credentials
    cdef Way transparent            # of connections that nftables brings here
    cdef bint is_inside             # of one connection that is intercepted: see inside
    cdef bint has_senders           # load balancers of its own; else the snapshot's
    cdef NetworkSets networks
    cdef uint32_t number            # if not is_for_all: of clients that need no credentials
    cdef uint32_t senders           # of load balancers
    cdef Prints prints              # of one connection's client; None: not wanted
    cdef bint host_strict           # Host must be the server name of the connection
    cdef uint32_t believed          # networks whose X-Forwarded-For names clients; 0: none
    cdef bint has_peer              # of one connection, whose requests name their clients …
    cdef Address peer               # … and which comes from this address

    # One more, for a connection of its own.
    cdef Entrance copy(self)
    cdef bint contains(self, uint32_t number, const Address *address) noexcept
    # Its connection ends. Only if `is_inside`.
    cdef int leave(self) except -1
    # Whether a client of this address may go on without credentials.
    cdef bint admits_anonymous(self, const Address *address) noexcept
    # Whether X-Forwarded-For of a proxy with this address names clients.
    cdef bint believes(self, const Address *address) noexcept
    # Whether a caller of this address may name clients, by PROXY headers.
    cdef bint admits_sender(self, const Address *address) noexcept
