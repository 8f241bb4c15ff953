"""The last send of a pump's turn, made with those of others when their batch of events ends."""

from cutthrough.net.pump cimport Pump

# Copies a push of two pieces, which counts as moved. False: it cannot wait, and must be sent directly.
cdef bint leave_to_batch(Pump *pump, const char *a, size_t n, const char *b, size_t m) noexcept nogil
# Sends what waits now: then `held`, `moved` and `error` are as if it had been sent directly.
cdef void settle(Pump *pump) noexcept nogil
# Of SENDING_SEALED: is that over? False: the kernel has not taken the rest yet. If it failed, the state
# is SENDING_FAILED.
cdef bint leave_sealed(Pump *pump) noexcept nogil
