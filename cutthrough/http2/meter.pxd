"""The cost of a peer's frames: a count of those that do nothing, before the library sees them."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from cutthrough.net.multiplex cimport Heard

cdef enum:
    PREFACE = 24            # octets before the first frame (RFC 9113 section 3.4)
    FRAME_HEAD = 9

cdef enum:
    CLOSED = 8              # streams that are remembered

cdef struct Meter:
    uint8_t preface         # octets of it that are still to come
    uint8_t head_n          # octets of the frame's header that have come
    uint8_t head[FRAME_HEAD]
    uint8_t has_frame       # a frame has been read whole
    uint32_t left           # octets of the frame's payload that are still to come
    uint32_t block_bytes    # of the header block at hand
    uint32_t block_frames   # of it; 0: no header block is incomplete
    int64_t block_us        # when it began
    uint32_t most_block     # octets of a header block
    uint32_t most_frames    # of a header block
    int64_t credit          # see PATIENCE in meter.pyx
    int64_t credit_us       # when it was last given
    int64_t earned          # WINDOW_UPDATE frames for which our DATA has paid
    int32_t[8] closed       # the last streams of which no frame may come; 0: none
    uint32_t n_closed       # how many there were
    int32_t[8] resets       # the last streams that the peer has reset; 0: none
    uint32_t n_resets       # how many there were
    uint8_t pads            # of DATA: its first octet, which comes next, says how much is padding
    uint8_t differs         # of PRIORITY: the stream on which it depends is not its own
    uint8_t is_stray        # DATA of a stream that is closed or reset has come
    uint8_t is_circular     # PRIORITY of a stream that depends on itself has come

# `preface`: the octets that come before the first frame.
cdef void start_meter(Meter *meter, uint32_t head_bytes, int preface,
                      int64_t now_us) noexcept nogil
# Reads the octets that have come; HEARD_ALL, or the reason to end the connection.
cdef Heard measure(Meter *meter, const char *data, size_t n, int64_t now_us) noexcept nogil
# Is it a stream of which no frame may come?
cdef bint is_closed(const Meter *meter, int32_t stream) noexcept nogil
# A frame with `n` octets of data has gone out.
cdef void give_credit(Meter *meter, size_t n) noexcept nogil
# A stream was refused. False: one too many.
cdef bint take_refusal(Meter *meter) noexcept nogil
