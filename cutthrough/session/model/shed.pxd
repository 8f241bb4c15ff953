"""Making room: connections at rest are closed when one of our bounds is reached (R32)."""

from cutthrough.net.address cimport Address
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.context cimport Context
from cutthrough.wire.http1 cimport Head

# `bound`: a Bound; see counters.
# Closes the connection that goes first, of all or of this address (NULL: all). False: none.
cdef bint shed_one(Context context, int bound, const Address *of) except -1
# There was no descriptor or no memory: closes up to `most` idle connections to origins and, if
# `clients_too`, up to `most` clients. Returns how many.
cdef int shed_for_descriptors(Context context, int most, bint clients_too) except -1
# Client.keep_input. If the share of blocks is used up, other connections with parts of heads
# are closed, the oldest of the address with most of them first. False: still no room.
cdef bint keep_part(Client client, const char *data, size_t n) except -1
# Closes the connection with an unfinished head or handshake that goes first. False: it is
# `client` itself, or there is none.
cdef bint shed_part(Client client, int bound) except -1
# Copies a whole head into client.head; makes room in the same way. False: no room.
cdef bint keep_head(Client client, const char *data, size_t n) except -1
# Keeps the refused target for the log, in place of a rewritten head and its path.
cdef void keep_refused(Client client, const Head *head, const char *data) noexcept
# A head takes strangers' room until its user is known; makes room in the same way. False: no
# room.
cdef bint lend_head(Client client) except -1
# It waits in AUTH: if it never authenticated, it may be closed to make room.
cdef void list_waiting(Client client) noexcept
