"""The last send of a pump's turn, made with those of others when their batch of events ends."""

from cutthrough.net.pump cimport Pump

# Copies a push of two pieces, and counts it as moved. False: it must be sent directly.
cdef bint leave_to_batch(Pump *pump, const char *a, size_t n, const char *b, size_t m) noexcept nogil
# Sends the batch now: `held`, `moved` and `error` are as after a direct send.
cdef void settle(Pump *pump) noexcept nogil
# Is SENDING_SEALED over? False: the kernel has not taken the rest yet. After a failure the state is
# SENDING_FAILED.
cdef bint leave_sealed(Pump *pump) noexcept nogil
