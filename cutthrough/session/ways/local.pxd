"""Origins in Python: functions of this process that answer requests; nothing is dialled."""

from cutthrough.session.model.client cimport Client

# Makes client.origin, and hands its other end to the function. Returns 0 or an errno. The
# function may have ended the client.
cdef int open_local(Client client, function) except -1
