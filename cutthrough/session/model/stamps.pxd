"""The time that each phase of a request takes, one after the other."""

from libc.stdint cimport UINT32_MAX, int64_t, uint32_t
from cutthrough.net.sysio cimport clock_us
from cutthrough.session.model.state cimport (
    AUTH, DECIDE, DIAL, PARENT, RELAY, REQUEST, RESOLVE, SECURE)

# The time that each phase of the request in hand took, in microseconds; 0: it was not begun.
# A phase takes 1 at least. 32 bits hold 71 minutes, more than the deadlines in use for these
# phases; a response may take longer to begin. Packed, to 52 bytes, as Timer is.
cdef packed struct Stamps:
    int64_t start_us                    # of CLOCK_MONOTONIC; 0: there is no request
    int64_t first_byte_us               # from the connection to the response's first byte
    uint32_t mark_us                    # from start_us to the start of the phase in hand
    uint32_t head_us                    # from the first byte to the whole head
    uint32_t auth_us                    # until the credentials are known, right or wrong
    uint32_t hook_us                    # waits before the way: hook, rate, fault, filters, player
    uint32_t dns_us                     # the name's look-ups; 0 for an address
    uint32_t connect_us                 # until there is a connection, also in vain; without TLS
    uint32_t send_us                    # of first_byte_us, until all was sent; for an observer
    uint32_t origin_tls_us              # handshakes with parents and origin, for this request
    uint32_t client_tls_us              # the client's, if the request began with it


cdef inline uint32_t within_32_bits(int64_t us) noexcept nogil:
    return <uint32_t>min(us, <int64_t>UINT32_MAX)


# Ends the phase in hand at `time_us` of CLOCK_MONOTONIC, and returns its microseconds.
cdef inline int64_t end_phase_at(Stamps *stamps, int64_t time_us) noexcept nogil:
    cdef int64_t now_us = time_us - stamps.start_us
    cdef int64_t took_us = now_us - stamps.mark_us
    stamps.mark_us = within_32_bits(now_us)
    return took_us if took_us > 0 else 1


cdef inline int64_t end_phase(Stamps *stamps) noexcept nogil:
    return end_phase_at(stamps, clock_us())


cdef inline uint32_t end_brief_phase(Stamps *stamps) noexcept nogil:
    return within_32_bits(end_phase(stamps))


# The request was sent as a whole. Ends no phase.
cdef inline void note_sent(Stamps *stamps) noexcept nogil:
    cdef int64_t took_us = clock_us() - stamps.start_us - stamps.mark_us
    stamps.send_us = within_32_bits(max(took_us, <int64_t>1))


# The phase in which the request ended, at `ended_us`, counts too: the log shows whether the
# request waited in vain for a name, a connection or a response. The phases' sum is at most
# the whole, so the clock is not read anew.
cdef inline void end_last_phase(Stamps *stamps, int state, int64_t ended_us) noexcept nogil:
    if state >= RELAY:
        return
    if stamps.head_us == 0:
        stamps.head_us = within_32_bits(end_phase_at(stamps, ended_us))
    elif state == AUTH and stamps.auth_us == 0:
        stamps.auth_us = within_32_bits(end_phase_at(stamps, ended_us))
    elif state == DECIDE:
        stamps.hook_us += within_32_bits(end_phase_at(stamps, ended_us))
    elif state == RESOLVE:
        stamps.dns_us += within_32_bits(end_phase_at(stamps, ended_us))
    elif state == DIAL or state == PARENT:
        stamps.connect_us += within_32_bits(end_phase_at(stamps, ended_us))
    elif state == SECURE:
        stamps.origin_tls_us += within_32_bits(end_phase_at(stamps, ended_us))
    elif state >= REQUEST and stamps.first_byte_us == 0:
        stamps.first_byte_us = end_phase_at(stamps, ended_us)
