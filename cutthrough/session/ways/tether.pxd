"""Tethers: a connection to an origin that serves one connection of a client alone."""

from cutthrough.net.connector cimport Upstream
from cutthrough.session.model.client cimport Client

# The client's own connection to the request's origin, if it waits; or None.
cdef Upstream take_tethered(Client client)
# Keeps a connection for the next request: anybody's, or this client connection's if it is tethered.
cdef int park_origin(Client client, Upstream upstream, bint instead) except -1
# The client's connection ends, and its own to an origin too.
cdef int cut_tether(Client client) except -1
