"""A WebSocket, if its messages go through filters."""

from libc.stdint cimport int64_t, uint8_t
from cutthrough.net.pump cimport Pump
from cutthrough.session.model.client cimport Client
from cutthrough.session.transfer.filtering cimport Filtering, filtering_of
from cutthrough.wire.http1 cimport Head

cdef class Side:
    """One direction. Its bytes are read here, and new frames go to its pump."""
    cdef Client client          # None: the exchange has ended
    cdef Pump *pump
    cdef list pieces            # read, and not taken yet
    cdef int64_t held           # memory of these
    cdef object waiter          # a future; None: nobody waits
    cdef uint8_t taps_origin    # its tap gets the origin's bytes, and not the filters'
    cdef uint8_t ended          # its source has ended its stream
    cdef uint8_t failed         # … by an Outcome; 0: regularly
    cdef uint8_t lost           # its sink takes no more
    cdef uint8_t finished       # its last frame was written


# The 101 was passed on: do filters have the messages? They get the bytes behind it, too.
cdef bint takes_messages(Client client, const Head *head, const char *data) except -1
# Bytes that came before the tunnel began.
cdef int give_messages(Client client, bint is_up, const char *data, size_t n) except -1
# One turn of the tunnel, in place of the relay's.
cdef int run_messages(Client client) except -1


cdef inline bint has_messages(Client client) noexcept:
    return client.extras.filtering is not None and filtering_of(client).up_side is not None
