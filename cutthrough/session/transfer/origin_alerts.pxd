"""The meaning of an origin's alert about our certificate."""

from cutthrough.session.model.client cimport Client

# The Outcome of a failed recv from the origin, whose errno this is; `otherwise`: if it was no such
# alert. Reports the alert.
cdef int outcome_of_alert(Client client, int error, int otherwise) except -1
