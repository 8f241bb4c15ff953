# cython: language_level=3
"""Connections whose bytes are streams. There is no multiplexer until a module sets it."""

cdef Multiplexer the_row
cdef bint is_set = False

stream_kind = KERNEL


cdef void set_multiplexer(const Multiplexer *row) noexcept nogil:
    global the_row, is_set, stream_kind
    the_row = row[0]
    stream_kind = row.kind
    is_set = True


cdef const Multiplexer *multiplexer() noexcept nogil:
    return &the_row if is_set else NULL


cdef const Socket *with_descriptor(const Socket *s) noexcept nogil:
    cdef const Socket *carrier = NULL
    if is_set and is_stream(s):
        carrier = the_row.carrier_of(s)
    return s if carrier == NULL else carrier
