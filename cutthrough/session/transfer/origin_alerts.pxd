"""The outcome of an origin's connection that failed."""

from cutthrough.session.model.client cimport Client

# Returns the Outcome of an errno that a read or a send got; 0: no memory for the bytes. If the client's
# stream is cut then, it ends as the origin's did: see pass_reset in net.multiplex.
cdef int outcome_of_origin(Client client, int error) except -1
# Whether the client's stream ends as the origin's did, by a code that says why.
cdef bint pass_reset(Client client) noexcept
# Returns the Outcome of a failed recv from the origin. `error`: its errno. If no alert about our
# certificate caused the failure, returns `otherwise`; else reports the alert.
cdef int outcome_of_alert(Client client, int error, int otherwise) except -1
