"""The minimum rate of a peer, judged when its deadline expires."""

from cutthrough.session.model.client cimport Client

# The exchange waits for this peer from now on. True: it did not before, and the deadline
# has to be armed again.
cdef inline bint wait_for(Client c, int whom) noexcept:
    if whom == c.awaited or not c.context.options.min_rate_bytes:
        return False
    return begin_wait(c, whom)

cdef bint begin_wait(Client c, int whom) noexcept
# A deadline has expired while no peer owes a rate. Restarts it, and returns True, if peers have
# taken more of the bytes in the kernel since the last look, or, at the first look after a
# move, if the kernel holds any.
cdef bint extend_if_taken(Client c) except -1
# The deadline has expired: returns the Outcome that ends the exchange, or OK if the peer was
# fast enough; then the next deadline is armed.
cdef int judge_rate(Client c) except -1
