"""A chunked body on its way through a pump: the filter that finds its end."""

from libc.stdint cimport uint64_t
from cutthrough.net.relay cimport Pump
from cutthrough.session.client cimport Scan

# Has the pump scan chunks with the scanner *made. `decode`: without their framing, for
# HTTP/1.0. `most`: data bytes; 0: no bound. False: no memory.
cdef bint scan_through(Pump *pump, Scan **made, bint decode, bint trailers, bint lenient,
                       uint64_t most) noexcept nogil
