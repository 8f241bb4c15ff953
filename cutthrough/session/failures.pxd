"""What is done, and said, when no connection to an origin could be made."""

from cutthrough.session.client cimport Client, Context

# No descriptor, or no memory, to dial with: closes what is idle (R32). True: some was.
cdef bint relieve(Context context, int error) except -1
# The Outcome of this errno of the last attempt to dial the client's destination.
cdef int outcome_of_errno(Client c, int error) except -1
