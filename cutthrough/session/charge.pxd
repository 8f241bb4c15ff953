"""How much a client may use: charged at each step of a connection."""

from cutthrough.session.client cimport Client

# All five return an Outcome: OK, or the refusal.
# For a connection just accepted.
cdef int admit_connection(Client client) noexcept
# client.user is known and may go there. Called for each request; _clear_request and close
# give back what it charges. Called a second time, it corrects the charge if other limits
# apply.
cdef int admit_user(Client client) except -1
# The deciding rule, and so the limits, may have changed since.
cdef int admit_again(Client client) except -1
# For a tunnel that another process let in; client.usage holds a part of its charge or nothing.
cdef int readmit_user(Client client) except -1
# For a request that becomes a tunnel: a 101.
cdef int admit_tunnel(Client client) noexcept

# Both only if there is a client.usage.meter. Before the pumps run: sets their allowances; False:
# the quota is used up. After they ran: sets the timer for their next turn.
cdef bint before_turn(Client client) noexcept
cdef int after_turn(Client client) except -1
