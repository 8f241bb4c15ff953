"""Why a call of libssl has failed, by the first error in its queue."""

# One of Handshake. `ended`: the peer has ended its stream.
cdef int reason_of_failure(bint ended) noexcept nogil
# The peer's alert; < 0: it was none.
cdef int alert_met() noexcept nogil
