"""Failed dials: the idle connections closed because of them, and their Outcome."""

from cutthrough.session.model.client cimport Client

# No descriptor, no memory or no local port to dial with: closes idle connections (R32). True: it
# closed some.
cdef bint relieve(Client client, int error) except -1
# Descriptors are free again: the pool has given them.
cdef int dial_anew(Client client) except -1
# Was a parent's name not asked for, for want of a place or a descriptor? `answer`: the resolver's
# label, or addresses.
cdef bint is_own_shortage(answer) except -1
# The Outcome for the errno that on_dialled was given.
cdef int outcome_of_errno(int error) except -1
