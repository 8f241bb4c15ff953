"""The target of a request of HTTP."""

from cutthrough.outcome cimport N_OUTCOMES
from cutthrough.session.model.client cimport Client
from cutthrough.wire.authority cimport Target
from cutthrough.wire.http1 cimport Head

cdef enum:
    IS_PAC = N_OUTCOMES         # in place of an Outcome: answered by `pac`

# Reads the target of a head into `target`, completes it, and sets the request's destination.
# Returns an Outcome, or IS_PAC.
cdef int find_target(Client client, Head *head, const char *data, Target *target) except -1
# The Outcome of a request to this proxy itself: a loop, or one for a tunnel of datagrams.
cdef int outcome_of_loop(Client client) noexcept
