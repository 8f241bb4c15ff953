"""Failed dials: the idle connections closed because of them, and their Outcome."""

from cutthrough.session.model.client cimport Client
from cutthrough.session.model.context cimport Context

# No descriptor, or no memory, to dial with: closes idle connections (R32). True: it closed some.
cdef bint relieve(Context context, int error) except -1
# Descriptors are free again: the pool has given them.
cdef int dial_anew(Client client) except -1
# The Outcome for the errno that on_dialled was given.
cdef int outcome_of_errno(int error) except -1
