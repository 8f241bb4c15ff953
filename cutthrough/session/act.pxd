"""The faults of the deciding rule, applied to a request before it goes on."""

from cutthrough.session.client cimport Client

# The rule is known, and has acts: charges the request, draws its faults, and goes on with it,
# at once or after HELD.
cdef int act(Client client) except -1
# The deadline of HELD.
cdef int end_hold(Client client) except -1
