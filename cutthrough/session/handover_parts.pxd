"""Parts of a tunnel's record: addresses, directions, and an upgrade's method and path."""

from cutthrough.net.address cimport Address
from cutthrough.net.pump cimport Pump
from cutthrough.policy.limits cimport Lane
from cutthrough.session.model.client cimport Client

# The record's form of each
cdef object address_of(const Address *address)
# b"": it is no upgrade, or there was no memory for its path.
cdef bytes request_of(Client c)
cdef object direction_of(Pump *pump, bint shut, const Lane *lane)
# Reads it back. Raises ValueError; read_direction raises MemoryError, too.
cdef int read_address(Address *address, parts) except -1
cdef int read_request(Client c, bytes request) except -1
# `fds` from the third on are pipes; a pipe that is taken leaves the list.
cdef int read_direction(Pump *pump, direction, bint may_splice, list fds) except -1
