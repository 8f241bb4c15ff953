"""Dials: their start, the idle connections closed because of failed ones, and their Outcome; those
closed for a question to a name server, or for datagrams."""

from cutthrough.net.address cimport Address, Addresses
from cutthrough.net.connector cimport Connector, dial
from cutthrough.net.udp cimport DatagramOwner, Datagrams
from cutthrough.session.model.client cimport Client, extras_of
from cutthrough.session.model.state cimport DIAL

# Dials the addresses in their order. The answer is on_dialled, which may be called before this
# returns.
cdef inline int begin_dial(Client client, Addresses addresses, int port) except -1:
    cdef Connector connector
    extras_of(client)                   # before, because a dial that has begun must be kept
    connector = dial(client.poller, client, addresses, port, client.context.options.timeout_ms[DIAL])
    if connector is not None:           # else on_dialled was called already
        extras_of(client).connector = connector
    return 0


# No descriptor, no memory or no local port to dial with: closes idle connections (R32). True: it
# closed some.
cdef bint relieve(Client client, int error) except -1
# Descriptors are free again: the pool has given them.
cdef int dial_anew(Client client) except -1
# A socket for datagrams of this client's association; for want of a descriptor idle connections
# are closed once. Raises OSError.
cdef Datagrams open_with_room(Client client, DatagramOwner owner, const Address *at)
# Was a parent's name not asked for, for want of a place or a descriptor? `answer`: the resolver's
# label, or addresses.
cdef bint is_own_shortage(answer) except -1
# The Outcome for the errno that on_dialled was given.
cdef int outcome_of_errno(int error) except -1
