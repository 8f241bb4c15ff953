"""Parents on a request's way: which one is taken, how it is dialled, and what follows a failure."""

from cutthrough.net.address cimport Address
from cutthrough.policy.parents cimport Way
from cutthrough.session.model.client cimport Client
from cutthrough.wire.http1 cimport Head

# Keeps what a parent may need of the head: the client's credentials, and Via.
cdef int keep_fields(Client client, const Head *head, const char *data) except -1
# Sets request.hop by request.route, and client.extras.passage if the way has a parent. False: no member
# is left, and the request has been refused.
cdef bint choose_parent(Client client) except -1
# The way that request.route names; None: directly. Only if the snapshot has ways.
cdef Way way_of(Client client)
# Source addresses are of direct connections: takes the one that a rule names out of request.hop,
# if a parent is in use.
cdef void set_source_aside(Client client) noexcept
# Dials the parent that was chosen. `checked`: the destination's address; NULL: the parent gets
# the name. `other`: an allowed address of the other family, for a parent that has no way to the
# first one; NULL: none.
cdef int dial_parent(Client client, const Address *checked, const Address *other) except -1
# The connection that was dialled is for the parent in use.
cdef bint seeks_parent(Client client) noexcept
# May this parent's address be dialled? Not our own listener's (R20).
cdef bint may_dial_parent(Client client, const Address *address) except -1
# The parent in use failed with this Outcome: takes another, or refuses the request (R44).
cdef int lose_parent(Client client, int outcome) except -1
# The parent's connection, or all of its dialogue, was made.
cdef int praise_parents(Client client) except -1
