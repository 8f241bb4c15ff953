"""A chunked body on its way through a pump: the filter that finds its end."""

from libc.stdint cimport uint8_t, uint64_t
from cutthrough.net.buffers cimport Block
from cutthrough.net.pump cimport Filter, Pump
from cutthrough.wire.chunks cimport Chunks

# The scanner of a chunked body, and the bytes behind the body. It is made for the message, and
# freed with the request.
cdef struct Scan:
    Filter filter           # of the pump; first, so that one pointer is both
    Chunks chunks
    Pump *pump
    Block *surplus
    uint64_t most           # data bytes; 0: no bound
    size_t valid            # bytes before the refused one, in the same read
    uint8_t no_room
    uint8_t too_large

# From now on the pump scans chunks. `decode`: it sends them without framing, for HTTP/1.0.
# `most`: data bytes; 0: no bound. False: no memory.
cdef bint scan_through(Pump *pump, bint decode, bint trailers, bint lenient,
                       uint64_t most) noexcept nogil
# Frees the scanner of a chunked body; nothing if there is none.
cdef void drop_scan(Pump *pump) noexcept nogil


# The scanner of the pump's body; NULL: the body is not chunked. Pumps have no other filters.
cdef inline Scan *scan_of(const Pump *pump) noexcept nogil:
    return <Scan *>pump.filter
