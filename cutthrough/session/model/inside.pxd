"""The entrance of a connection that is intercepted: what its CONNECT has settled."""

from libc.stdint cimport uint8_t, uint16_t
from cutthrough.net.address cimport Address
from cutthrough.net.connector cimport Upstream
from cutthrough.policy.auth cimport Account
from cutthrough.policy.snapshot cimport Snapshot
from cutthrough.session.model.client cimport Client, own_opening
from cutthrough.session.model.entrance cimport Entrance
from cutthrough.session.model.prints cimport Prints
from cutthrough.wire.authority cimport Target
from cutthrough.wire.openings cimport Opening

# One connection's, from the verdict to its close. Its user and its destination are the CONNECT's.
cdef class Inside(Entrance):
    cdef bytes key                  # the CONNECT's, canonical host and two bytes of port
    cdef bytes name                 # on the origin's certificate and on ours
    # Key of the requests inside, if the CONNECT names an address, and the client a server; else
    # None, and theirs is the CONNECT's
    cdef bytes named
    cdef bytes suffix               # of the pool's key, if theirs does not say all; else None
    cdef bytes offer                # of the ClientHello, for the origin's; None: our own
    cdef bytes login                # the user's name, for logs; None: nobody
    cdef Account account            # of `snapshot`
    cdef uint8_t vouched            # as in Client, of the CONNECT
    cdef Snapshot snapshot          # by which the CONNECT was judged last
    cdef bint cuts                  # the rule by which it was has `cut` set
    cdef uint16_t port
    cdef uint8_t host_kind
    cdef bint only_http             # other protocols inside do not pass
    cdef bint is_unnamed            # the origin knows no such server name: it gets none
    cdef Address address            # the CONNECT's; family 0: not known
    cdef Address client             # if has_peer: the one that the CONNECT named
    cdef uint16_t tls               # Hop.tls of the way to the origin
    cdef uint16_t tls_11            # the same, for a connection that must be HTTP/1.1
    cdef uint16_t source            # Hop.source of the same
    cdef uint16_t route             # as in Request
    cdef Prints outer               # of the CONNECT's own connection; None: not wanted
    cdef bytes credentials          # of the CONNECT, for parents; None: none
    cdef Upstream spare             # to the origin, for the first request; None: taken
    cdef Opening *opening           # the client's ClientHello; NULL: the CONNECT has it

# The entrance for a tunnel whose first bytes are a ClientHello; None: its server name is not
# the CONNECT's host.
cdef Inside enclose(Client client, bytes offer)
# Has connections to the origin from now on show the certificate of this rule of `snapshot`.
cdef int identify(Inside inside, int rule) except -1
# The name that the origin has to prove; None: the client wants another one than the CONNECT's.
cdef bytes name_in(Client client)
# The CONNECT is for an address, and the ClientHello behind it names a server.
cdef bint names_server(Client client) noexcept
# Sets the destination of a request inside; `target`: as read, completed. Returns an Outcome.
cdef int pin_target(Client client, Target *target) except -1
# Makes the destination of a tunnel inside that of its CONNECT.
cdef int pin_tunnel(Client client) except -1
# The request is one inside an intercepted connection, or its CONNECT.
cdef inline bint is_intercepted(Client client) noexcept:
    return client.entrance is not None and client.entrance.is_inside


# The key by which the way is chosen that a connection and the requests inside it go.
cdef inline bytes key_of_way(Client client):
    return (<Inside>client.entrance).key if is_intercepted(client) else client.key


# The fingerprints by which the request is judged: of the connection that it came by. None: unknown.
cdef inline Prints prints_of(Client client):
    if client.entrance is None:
        return None
    if client.entrance.is_inside and own_opening(client) != NULL:   # judged as its CONNECT
        return (<Inside>client.entrance).outer
    return client.entrance.prints


# The ClientHello of the request's tunnel, or around the request; NULL: none is known.
cdef const Opening *opening_of(Client client) noexcept
