"""The END of an exchange, from its session: see end_record."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cutthrough.net cimport linux
from cutthrough.net.pump cimport Tap
from cutthrough.net.transport cimport Agreed, Socket
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.prints cimport Prints
from cutthrough.tape.end_record cimport EndRecord
from cutthrough.tape.ring cimport Producer
from cutthrough.wire.openings cimport Opening

# One direction of a body. `tap` is first: the pump's pointer is to this field.
cdef struct Body:
    Tap tap
    Producer *ring
    uint64_t request
    uint64_t seen               # bytes behind the head
    uint64_t room               # bytes that may still be kept
    uint16_t worker
    uint16_t kind               # UP, DOWN, TIMED_DOWN, FRAMES_UP or FRAMES_DOWN
    uint8_t is_behind_head
    uint8_t was_cut             # the ring had no room
    uint8_t is_beyond           # … or is longer than may be kept
    uint8_t may_not_be_lost     # it is recorded

cdef struct Exchange:
    Body up                     # first: relay.up.tap points to it
    Body down
    uint8_t is_recorded


cdef inline int64_t unix_us() noexcept nogil:
    cdef linux.timespec now
    linux.clock_gettime(linux.CLOCK_REALTIME, &now)
    return <int64_t>now.tv_sec * 1000000 + now.tv_nsec // 1000


# `now_us`: CLOCK_MONOTONIC.
cdef void fill_in(EndRecord *end, Client c, int64_t now_us) noexcept
cdef void fill_bodies(EndRecord *end, Client c, const Exchange *exchange) noexcept
cdef void fill_prints(EndRecord *end, const char **texts, Prints prints) noexcept
cdef void fill_opening(EndRecord *end, const char **texts, const Opening *opening) noexcept
# NULL: no TLS, or its handshake is not over.
cdef const Agreed *agreed_of(const Socket *s, Agreed *out) noexcept
cdef void fill_tls(const Agreed *agreed, uint16_t *version, const char **cipher,
                   uint32_t *cipher_len) noexcept
