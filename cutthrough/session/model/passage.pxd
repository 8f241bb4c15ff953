"""A request's passage through parents, while it has one."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cutthrough.net.address cimport Address
from cutthrough.policy.parents cimport Parent, Way
from cutthrough.wire.authority cimport Target


@cython.no_gc
cdef class Passage:
    """Made when a request's route is no direct one, or when a field of its head may be needed on
    the way; dropped when the origin is connected."""
    cdef Way way                        # None: not chosen yet
    cdef int member                     # index of `parent` in the way
    cdef Parent parent                  # the member in use; None: none, or `direct`
    cdef tuple chain                    # of Parent: the one that is dialled first
    cdef int leg                        # index in `chain` of the parent in dialogue
    cdef int step                       # wire's Step
    cdef uint64_t tried                 # bits of the members that failed
    cdef int outcome                    # of the member that failed last; OK: none did
    cdef int code                       # the last answer's status or code; 0: none
    cdef uint16_t source                # of a direct connection; the parent's has none
    cdef uint8_t is_shaking             # the TLS handshake of this leg is not done
    cdef uint8_t seeks_parent           # RESOLVE and DIAL are for the parent, not the destination
    cdef uint8_t by_standby             # the connection was ready before the request
    cdef int64_t began_us               # when the parent was dialled
    cdef int64_t shaking_us             # when this leg's TLS handshake began
    cdef uint32_t tls_us                # of the handshakes that are done
    cdef Address checked                # the destination's; family 0: the parent resolves it
    cdef Address other                  # one of the other family, not tried yet; family 0: none
    cdef Target target                  # the destination as the last parent gets it
    cdef bytes credentials              # the client's, to be passed on; None: none
    cdef bytes via                      # for Via in a CONNECT; None: only our own
    cdef bytes head                     # the CONNECT's, rewritten, for filters; None: not wanted
