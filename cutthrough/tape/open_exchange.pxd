"""An exchange whose END has not come yet."""

from libc.stdint cimport int64_t, uint64_t
from cutthrough.tape.end_record cimport EndRecord
from cutthrough.tape.record cimport Kind

cdef enum:
    # What a piece takes beside its bytes: measured of frames, whose pieces are three objects
    # each and their place in a list. Tiny ones took fourteen times the bound
    PIECE_BYTES = 160

cdef class OpenExchange:
    """The parts of an exchange so far; None: none of this kind."""
    cdef bytes heads
    cdef list up
    cdef list down
    cdef list pieces
    cdef list timed                         # pieces of an answer, each behind its time
    cdef list asked                         # bytes of `up` that came before each of these
    cdef uint64_t head_asked                # … and before the answer's head
    cdef uint64_t n_up
    cdef int64_t size                       # in memory


# Bytes of memory that the part takes. Raises ValueError if the payload is too short.
cdef int64_t add_part(OpenExchange exchange, Kind kind, bytes payload) except -1
# Raises ValueError if its lengths go beyond `n` bytes, or it has numbers that do not exist.
cdef int check_end(const EndRecord *end, size_t n) except -1
# Has it, though its answer has content? The content may have less than its Content-Length then.
cdef bint has_failed(const EndRecord *end)
# Pieces of an answer without their times; None: there are none.
cdef list untimed(list pieces)
cdef list appended(list pieces, object piece)
