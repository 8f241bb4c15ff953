"""The operator's function is asked about a request that the rules let pass."""

from cutthrough.session.model.client cimport Client

# The phase: calls the operator's function, and waits in DECIDE; not if there is none, or if its
# last verdict is still good.
cdef int ask(Client c) except -1
