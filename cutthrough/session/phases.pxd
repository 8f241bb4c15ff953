"""The phases of a request, from its head to its origin: one table."""

from cutthrough.session.model.client cimport Client

# Runs the phases from `first` on, until the request waits or has an answer.
cdef int run_phases(Client client, int first) except -1
