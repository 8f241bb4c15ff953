"""How much a client may use: asked at each door that a connection goes through."""

from cutthrough.session.client cimport Client

# All return an Outcome: OK, or the refusal.
# It was accepted.
cdef int admit_connection(Client client) noexcept
# client.user is known and may go there. For each request anew; what it takes,
# _clear_request and close give back. Called again, it changes what was charged where other
# limits bind.
cdef int admit_user(Client client) except -1
# A tunnel that another process let in, and of which client.usage holds a part or nothing.
cdef int readmit_user(Client client) except -1
# It turns into a tunnel: a 101.
cdef int admit_tunnel(Client client) noexcept

# Both only where there is client.usage.meter. Before the pumps run: what may they read? False:
# the quota is used up. And after: when shall they run again?
cdef bint before_turn(Client client) noexcept
cdef int after_turn(Client client) except -1
