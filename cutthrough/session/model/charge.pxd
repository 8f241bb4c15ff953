"""How much a client may use: charged at each step of a connection."""

from libc.stdint cimport int64_t
from cutthrough.net.address cimport Address
from cutthrough.policy.limits cimport Terms
from cutthrough.session.model.client cimport Client

# All eight return an Outcome: OK, or the refusal.
# For a connection just accepted.
cdef int admit_connection(Client client) noexcept
# The phase: admits the user, unless limits depend on the destination's address.
cdef int charge(Client client) except -1
# The user is known and may go there. Called for each request; _clear_request and close give the
# charge back. A second call corrects the charge if other limits apply.
cdef int admit_user(Client client) except -1
# The same for a request with faults: bytes a second, and bytes in either direction; 0: no bound.
# These bounds stay with the request if it is charged again.
cdef int admit_with_faults(Client client, int64_t bandwidth, int64_t most_bytes) except -1
# The deciding rule, and so the limits, may have changed since.
cdef int admit_again(Client client) except -1
# For a tunnel that another process let in; client.usage holds a part of its charge or nothing.
cdef int readmit_user(Client client) except -1
# The next datagrams count against the limits with this name; None: the user's own. Bounds on
# connections and tunnels do not apply. `left`: the association's buckets of
# tunnel_bytes_per_second, kept until it takes the same limits again.
cdef int take_limits(Client client, object name, dict left) except -1
# The name of the limits that the deciding rule, or the hook, names; None: the user's own.
cdef object named_limits(Client client)
# The same of the rule alone, which has let it in.
cdef object limits_of_rule(Client client)
# The subject of the request's limits: its user's name, or Terms.subject.
cdef bytes counted_of(Client client, Terms terms)
# The address that the connection counts for. A client that a request names has no connection.
cdef const Address *caller_of(Client client) noexcept
# Before its bytes move: a reload may have brought other limits since it was charged.
cdef int renew_meanwhile(Client client) except -1
# After readmit_user: counts it where the limits of this process count.
cdef int move_row(Client client) except -1
# For a request that becomes a tunnel: a 101.
cdef int admit_tunnel(Client client) noexcept

# All four only if there is a client.usage.meter. Before the pumps run: sets their allowances;
# False: the exchange is to end, with this Outcome. After they ran: sets the timer for their next
# turn. Returns the milliseconds until then if there is no origin that has the timer; else 0.
cdef bint before_turn(Client client) noexcept
cdef int outcome_of_meter(Client client) noexcept
# How many of the `n` bytes that came with a response's head may pass behind it: by faults.
cdef size_t may_pass(Client client, size_t head_len, size_t n) noexcept
cdef int after_turn(Client client) except -1
# Whether bytes of either direction wait for the limits alone: no peer is late meanwhile.
cdef bint is_paced(Client client) noexcept
