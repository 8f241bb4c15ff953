"""An exchange to be recorded."""

from libc.stdint cimport int64_t, uint64_t
from cutthrough.tape.end_record cimport EndRecord
from cutthrough.tape.gathered cimport Whole
from cutthrough.tape.open_exchange cimport OpenExchange
from cutthrough.tape.texts cimport Text

cdef class RingExchange:
    cdef tuple owners               # of the memory that the texts and pieces are in
    cdef Text user_text
    cdef Text host_text
    cdef Text up_text               # heads
    cdef Text down_text
    cdef Text added_text            # secrets that filters have added, by lines
    cdef list timed                 # pieces of `down`, each behind its time; None: `whole` has them
    cdef Whole whole
    cdef readonly bytes up
    cdef readonly list pieces
    cdef readonly list asked
    cdef readonly uint64_t head_asked
    cdef readonly str reason
    cdef readonly uint64_t up_bytes
    cdef readonly uint64_t down_bytes
    cdef readonly int64_t begun_us
    cdef readonly int64_t head_at_us
    cdef readonly int64_t wait_us
    cdef readonly int port
    cdef readonly bint is_intercepted
    cdef readonly bint up_chunked
    cdef readonly bint down_chunked
    cdef readonly bint was_cut
    cdef readonly bint is_unanswered

    cdef list timed_pieces(self)

# Of parts that were put together; `owner`: of the memory of `end`.
cdef RingExchange ring_exchange_of(const EndRecord *end, object owner, OpenExchange parts)
# Of an exchange in the ring. None: it is not to be recorded alone, or not of the usual kinds of
# records, in their usual order.
cdef RingExchange ring_exchange_in(Whole whole)
