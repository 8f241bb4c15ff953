"""How fast a peer must be, judged where its deadline comes."""

from cutthrough.session.client cimport Client

# The exchange waits for this peer from now on. True: it did not before, and the deadline
# has to be armed anew.
cdef inline bint wait_for(Client c, int whom) noexcept:
    if whom == c.awaited or not c.context.least_bytes:
        return False
    return begin_wait(c, whom)

cdef bint begin_wait(Client c, int whom) noexcept
# A deadline has come where nobody owes a pace. Was more taken of what the kernel holds than
# at the look before, or is there something to be taken, at the first one? Then it begins anew.
cdef bint extend_if_taken(Client c) except -1
# The deadline has come: the Outcome that ends the exchange, or OK when the peer was fast
# enough, and the next deadline is armed.
cdef int judge_rate(Client c) except -1
