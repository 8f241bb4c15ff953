"""The faults and the filters of the deciding rule, applied to a request before it goes on."""

from cutthrough.policy.acl cimport BY_CONNECT, BY_FAULTS, BY_HEADERS
from cutthrough.session.model.client cimport Client

# The rule has faults or filters, and they wait for nothing. A tunnel has those that see it.
cdef inline bint is_due(Client client) noexcept:
    return client.request.acts & (
        <int>(BY_FAULTS | BY_CONNECT) if client.request.is_tunnel else
        ~(BY_HEADERS | BY_CONNECT)) and not (
        client.request.acted | client.request.address_dependent)


# The phase: charges the request, draws its faults, and applies them; a latency in HELD.
cdef int apply_faults(Client client) except -1
# The phase: the filters, and the breakpoint, get the head.
cdef int filter_head(Client client) except -1
# The deadline of HELD.
cdef int end_hold(Client client) except -1
