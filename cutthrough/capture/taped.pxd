"""An exchange to be recorded."""

from libc.stdint cimport int64_t, uint64_t

cdef class Taped:
    cdef bytes user_line            # the text of `user`, of `host`, and of the heads
    cdef bytes host_line
    cdef bytes up_lines
    cdef bytes down_lines
    cdef list timed                 # pieces of `down`, each behind its time, an int64
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
