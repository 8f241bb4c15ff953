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
    PHASE_PARENT
    PHASE_REUSE
    PHASE_TURN
    PHASE_CONNECT
    PHASE_SEND
    N_PHASES
    # The first of those that look for a way to the origin
    PHASE_WAY = PHASE_REPLAY

# What a phase returns beside OK, after which the next one comes, and an Outcome, which refuses
# the request: the request waits in a state and is resumed, or it has an answer.
cdef enum:
    PARKED = -2


# Of a phase that ends with this call.
cdef inline int parked(int _) noexcept:
    return PARKED
