"""The meaning of an origin's alert about our certificate."""

from cutthrough.session.model.client cimport Client

# Returns the Outcome of a failed recv from the origin. `error`: its errno. If no alert about our
# certificate caused the failure, returns `otherwise`; else reports the alert.
cdef int outcome_of_alert(Client client, int error, int otherwise) except -1
