# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A missed deadline: the end of a request, or more time.

The table of states has each state's outcome. The exceptions are here. HELD goes on, and so does PEEK,
with the bytes it has. In REQUEST and RELAY either side may stall, and the outcome names that side.
"""

from cutthrough.net.relay cimport is_holding
from cutthrough.net.sysio cimport CAN_WRITE
from cutthrough.net.transport cimport KERNEL
from cutthrough.outcome cimport (
    LIFETIME, OK, PARENT_TIMEOUT, RESPONSE_TIMEOUT, TLS_TIMEOUT, WRITE_TIMEOUT)
from cutthrough.session.act cimport end_hold
from cutthrough.session.awaited cimport NOBODY, SENDER
from cutthrough.session.client cimport Client, is_between_requests
from cutthrough.session.delivery cimport look_again
from cutthrough.session.flight_recorder cimport E_DEADLINE, note
from cutthrough.session.min_rate cimport extend_if_taken, judge_rate
from cutthrough.session.parents cimport lose_parent, seeks_parent
from cutthrough.session.peek cimport end_peek
from cutthrough.session.stage cimport STAGE_TLS
from cutthrough.session.state cimport (
    DATAGRAMS, DELIVER, HALF_CLOSED, HELD, LINGER, PARENT, PEEK, RELAY, REQUEST, RESOLVE,
    outcome_at_deadline)


cdef int miss_deadline(Client c) except -1:
    cdef int outcome = outcome_at_deadline(c.state)
    note(c.context.recorder, <void *>c, c.poller.time_ms() * 1000, E_DEADLINE, c.state, 0)
    if c.state == LINGER:
        return c.close()
    if c.state == DELIVER:
        return look_again(c)
    if c.stages & STAGE_TLS and c.sock.kind != KERNEL and c.stamps.start_us:
        return c.abort(TLS_TIMEOUT, False)
    if is_between_requests(c):
        return 0 if c.close_idle() else c.extend()              # no request was begun
    if c.is_too_old():
        return c.refuse(LIFETIME)
    if c.state == PEEK:
        return end_peek(c)
    if c.state == DATAGRAMS:
        return c.refuse(outcome)
    if c.state == HELD:
        return end_hold(c)
    if RESOLVE <= c.state <= PARENT and seeks_parent(c):
        return lose_parent(c, PARENT_TIMEOUT)
    if c.awaited == NOBODY:
        if REQUEST <= c.state <= HALF_CLOSED and extend_if_taken(c):
            return 0
    elif c.awaited != SENDER or c.poller.time_ms() >= c.watch.rate.until_ms:
        outcome = judge_rate(c)
        return c.refuse(outcome) if outcome != OK else 0
    if c.state == RELAY and is_holding(&c.relay.down):
        outcome = WRITE_TIMEOUT
    elif c.state == REQUEST and c.origin is not None and (
            c.waits_for_100() or not c.origin.sock.ready & CAN_WRITE):
        outcome = RESPONSE_TIMEOUT      # the origin stalls, not the client
    return c.refuse(outcome)
