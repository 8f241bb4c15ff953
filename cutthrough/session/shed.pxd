"""Room is made: what is at rest is closed when one of our bounds is reached (R32)."""

from cutthrough.net.address cimport Address
from cutthrough.session.client cimport Client, Context

# All close what they name at a Bound; see counters.
# The connection that goes first, of all or of this address (NULL: all). False: none may.
cdef bint shed_one(Context context, int bound, const Address *of) except -1
# There was no descriptor or no memory: `most` of them, and the pool of origins'. How many.
cdef int shed_for_descriptors(Context context, int most) except -1
# Client.keep_input. When the share of blocks is used up, other connections' parts of heads
# go, the oldest of the address with most of them first. False: still no room.
cdef bint keep_part(Client client, const char *data, size_t n) except -1
# Copies a whole head into client.head; makes room in the same way. False: no room.
cdef bint keep_head(Client client, const char *data, size_t n) except -1
# A head whose user is not known yet takes strangers' room until that is; makes room in the
# same way. False: no room.
cdef bint lend_head(Client client) except -1
# It waits in AUTH: if nobody knows it yet, it may be closed to make room.
cdef void list_waiting(Client client) noexcept
