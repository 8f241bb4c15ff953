# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A missed deadline: the end of a request, or more time.

The table of states has each state's outcome; the table of handlers in `connection` says which of
these functions a state has. In REQUEST and RELAY either side may stall, and the outcome names
that side. No side stalls while filters have its bytes, or the limits hold them back.
"""

from cutthrough.net.relay cimport is_holding
from cutthrough.net.sysio cimport CAN_WRITE
from cutthrough.net.transport cimport KERNEL
from cutthrough.outcome cimport (
    BAD_PARENT, LIFETIME, OK, PARENT_TIMEOUT, RESPONSE_TIMEOUT, TLS_TIMEOUT, WRITE_TIMEOUT)
from cutthrough.policy.hop cimport HOP_NAMED_ORIGIN
from cutthrough.session.model.awaited cimport NOBODY, SENDER
from cutthrough.session.model.charge cimport is_paced
from cutthrough.session.model.client cimport Client, is_between_requests
from cutthrough.session.model.stage cimport STAGE_TLS
from cutthrough.session.model.state cimport RELAY, REQUEST, outcome_at_deadline
from cutthrough.session.transfer.filtering cimport are_at_work
from cutthrough.session.transfer.min_rate cimport extend_if_taken, judge_rate
from cutthrough.session.transfer.peek cimport end_peek
from cutthrough.session.ways.origins cimport blame_server
from cutthrough.session.ways.parents cimport lose_parent, seeks_parent


cdef int miss_head(Client c) except -1:
    if c.stages & STAGE_TLS and c.sock.kind != KERNEL and c.stamps.start_us:
        return c.abort(TLS_TIMEOUT, False)
    return close_between(c) if is_between_requests(c) else miss_step(c)


cdef int close_between(Client c) except -1:
    return 0 if c.close_idle() else c.extend()


cdef int miss_step(Client c) except -1:
    return c.refuse(LIFETIME if c.is_too_old() else outcome_at_deadline(c.state))


cdef int miss_peek(Client c) except -1:
    return c.refuse(LIFETIME) if c.is_too_old() else end_peek(c)


cdef int miss_way(Client c) except -1:
    return lose_parent(c, PARENT_TIMEOUT) if seeks_parent(c) else miss_step(c)


cdef int miss_transfer(Client c) except -1:
    cdef int outcome
    if c.is_too_old():
        return c.refuse(LIFETIME)
    if c.awaited == NOBODY:
        if are_at_work(c) or is_paced(c):
            return c.extend()
        if extend_if_taken(c):
            return 0
    elif c.awaited != SENDER or c.poller.time_ms() >= c.watch.rate.until_ms:
        outcome = judge_rate(c)
        return c.refuse(outcome) if outcome != OK else 0
    outcome = outcome_at_deadline(c.state)
    if c.state == RELAY and is_holding(&c.relay.down):
        outcome = WRITE_TIMEOUT
    elif c.state == REQUEST and c.origin is not None and (
            c.waits_for_100() or not c.origin.sock.ready & CAN_WRITE):
        outcome = RESPONSE_TIMEOUT      # the origin stalls, not the client
    if outcome == RESPONSE_TIMEOUT and c.request.hop.kind == HOP_NAMED_ORIGIN:
        blame_server(c, BAD_PARENT)
    return c.refuse(outcome)
