"""Why a call of libssl has failed, by the first error in its queue."""

from cutthrough.net.tls.openssl cimport SSL
from cutthrough.net.tls.wire cimport Tls

# One of Handshake. `ended`: the peer has ended its stream.
cdef int reason_of_failure(bint ended) noexcept nogil
# The peer's alert; < 0: it was none.
cdef int alert_met() noexcept nogil
# The peer's certificate was not accepted: keeps the reason for `why_denied`.
cdef void note_denied(const SSL *ssl) noexcept nogil
# As if libssl had read it.
cdef void set_alert(int alert) noexcept nogil
# The errno of a fatal alert of the peer's.
cdef int errno_of_alert(const Tls *t, int alert) noexcept nogil
