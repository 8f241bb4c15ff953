"""A body that ends with its connection, in chunks of our own: its client may ask again."""

from cutthrough.net.pump cimport Pump

cdef enum:
    MOST_FRAME = 16             # octets of a chunk's line, with the end of the chunk before
    FRAMED_FIELD_BYTES = 28     # of the field that says so

# From now on the pump sends each piece as a chunk. False: no memory.
cdef bint frame_through(Pump *pump) noexcept nogil
cdef bint is_framing(const Pump *pump) noexcept nogil
# Adds the field to a head of `n` octets, which has room for it. Returns its new length.
cdef size_t announce_frames(char *head, size_t n) noexcept nogil
# Writes what stands before `n` octets that are pushed past the filter. Returns its length.
cdef size_t put_frame(Pump *pump, char *out, size_t n) noexcept nogil
# The source has ended: pushes the last chunk, once. False: as push.
cdef bint end_frames(Pump *pump) noexcept nogil
