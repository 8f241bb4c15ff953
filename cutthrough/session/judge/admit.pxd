"""A caller is admitted, or turned away before its first request."""

from cutthrough.session.model.client cimport Client
from cutthrough.session.model.context cimport Context

# At a bound connections at rest are closed first, to admit the caller. Both return an Outcome.
# Counts the caller in all bounds of connections.
cdef int admit(Client client) except -1
# Checks the worker's bound only: the client's address is not known yet.
cdef int make_place(Context context) except -1
# Answers with this outcome and lingers; resets if too many of these linger already.
cdef int turn_away(Client client, int outcome) except -1
