"""The ways of an exchange into the hands of its filters."""

from cutthrough.session.model.client cimport Client
from cutthrough.wire.framing cimport Framing
from cutthrough.wire.http1 cimport Head

# The deciding rule has filters: calls those of the request's head, or of the tunnel to be. The
# state is HELD.
cdef int begin_filters(Client client) except -1
# The tunnel opens, and leaves its filters. Returns the head of the 200 with their fields; None: it
# has no field, or there are no filters.
cdef bytes leave_filters(Client client)
# The request goes up: have filters or the player its body? Then the head goes with it.
cdef bint takes_upload(Client client) except -1
cdef int begin_upload(Client client) except -1
# A final head was read, and no byte of it was sent. True: the filters have it now.
cdef bint takes_response(Client client, const Head *head, const Framing *framing,
                         const char *data, size_t n, int used) except -1
