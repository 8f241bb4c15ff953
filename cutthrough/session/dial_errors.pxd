"""What is done, and said, when no connection to an origin could be made."""

from cutthrough.session.client cimport Context

# No descriptor, or no memory, to dial with: closes what is idle (R32). True: some was.
cdef bint relieve(Context context, int error) except -1
# The Outcome of the errno that on_dialled told.
cdef int outcome_of_errno(int error) except -1
