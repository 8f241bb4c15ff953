"""A record of a ring."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef enum Kind:
    PADDING = 0                 # to the end of the ring: the next record is at its start
    HEADS                       # of the response; of an upgrade, of the request too
    UP                          # a piece of the request's body
    DOWN                        # a piece of the response's body
    END
    FRAMES_UP                   # an int64, Unix time in µs, and the bytes of a WebSocket
    FRAMES_DOWN
    TIMED_DOWN                  # as DOWN, with its time: of an answer that is recorded

cdef enum:
    TIME_BYTES = 8              # of the time before a piece

# A record; `size` is a multiple of 8. If it is PADDING, only the first eight bytes are there.
cdef struct Record:
    uint32_t size               # bytes, this struct and the padding behind the payload included
    uint16_t kind
    uint16_t worker             # with `request`, the identifier in logs
    uint64_t request
    uint64_t length             # bytes of the payload

cdef inline const char *payload_of(const Record *record) noexcept nogil:
    return <const char *>(record + 1)

# Whether both are of the same exchange.
cdef inline bint is_same(const Record *record, const Record *other) noexcept nogil:
    return record.request == other.request and record.worker == other.worker

# Whether it can be a record, or padding, if so many bytes are left. Something else has written
# into this memory if not.
cdef inline bint is_framed(const Record *record, uint64_t left) noexcept nogil:
    return 8 <= record.size <= left and record.size & 7 == 0 and (
        record.kind == PADDING or record.size >= sizeof(Record))
