"""The numbers of the phases of a request; their table is in `phases`."""

cdef enum Phase:
    PHASE_VERIFY = 0
    PHASE_JUDGE
    PHASE_WATCH
    PHASE_ASK
    PHASE_FAULTS
    PHASE_FILTER
    PHASE_CHARGE
    PHASE_REPLAY
    PHASE_ROOM
    PHASE_LOCAL
    PHASE_WAY
    PHASE_REUSE
    PHASE_TURN
    PHASE_CONNECT
    PHASE_SEND
    N_PHASES
    # The first phase on the way to the origin
    PHASE_TO_ORIGIN = PHASE_REPLAY

# A phase returns OK if the next phase follows, an Outcome if the request is refused, and this if
# the request waits in a state or has its answer.
cdef enum:
    PARKED = -2


# Of a phase that ends with this call.
cdef inline int parked(int _) noexcept:
    return PARKED
