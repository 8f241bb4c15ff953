"""A body on its way through filters: bytes come out of C here, and others go back."""

from libc.stdint cimport int64_t, uint8_t
from cutthrough.net.pump cimport Pump, Tap
from cutthrough.session.model.client cimport Client
from cutthrough.wire.chunks cimport Chunks

cdef class Sluice:
    """One body. Its bytes are read here, without their framing, and bytes that are framed
    again go to the pump of that direction, whose own reading is off."""
    cdef Client client          # None: the exchange has ended
    cdef Pump *pump
    cdef list pieces            # read, and not taken yet
    cdef int64_t held           # memory of these
    cdef int64_t left           # still to be read; < 0: until the last chunk, or the end
    cdef Chunks *chunks         # NULL: not chunked
    cdef bytearray trailer      # the lines behind the last chunk, and the empty one
    cdef Tap *tap               # gets the body as it comes, and not as it goes; NULL: see Pump.tap
    cdef object waiter          # a future; None: nobody waits
    cdef object timer           # of its pace, if there is no origin to time it; else None
    cdef uint8_t is_up
    cdef uint8_t until_close    # the body ends with its stream
    cdef uint8_t ended          # it has been read to its end
    cdef uint8_t finished       # its last byte was written
    cdef uint8_t lost           # the origin takes no more
    cdef uint8_t awaits_head    # filters have a request's body, and the origin got nothing yet
    cdef list unsent            # what they write while the origin is dialled anew; else None
    cdef list paced             # what they wrote and the request's limits hold back; else None
    cdef Py_ssize_t paced_at    # so much of its first piece was sent

    # As `write`; taps do not get bytes that are not shown.
    cdef bint put(self, const char *data, size_t n, bint is_shown) except -1

# Makes the sluice for a body in chunks, of `left` bytes, or until the end of the stream (< 0).
# `trailers`: those behind chunks may be sent on.
cdef Sluice open_sluice(Client client, bint is_up, bint chunked, int64_t left, bint trailers)
# Bytes that came before: behind a head. Returns an Outcome.
cdef int give(Sluice sluice, char *data, size_t n) except -1
# Sends what was written while the origin was dialled anew.
cdef int put_all(Sluice sluice, list unsent) except -1
# Runs one turn: sends the held bytes, reads up to a bound, and wakes the filters. Called for
# every event while the sluice is open.
cdef int run_sluice(Sluice sluice) except -1
# Its sink failed, or there is no memory: ends the exchange, or reads the origin's answer.
cdef int fail(Sluice sluice) except -1
cdef int close_sluice(Sluice sluice) except -1
