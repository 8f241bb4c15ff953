# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The faults of the deciding rule, applied to a request before it goes on, its filters and breakpoint.

    rules, hook ─> faults ─> HELD, for a latency ─> HELD, by filters ─> limits ─> the way

Faults are drawn once for a request or tunnel. A bound on bandwidth or data is a part of its
terms, so that the pumps pace it as they pace limits: with such a fault the limits are charged
here. If the rule depends on the address, this
comes once the address is known, before it is dialled.
"""

from cutthrough.outcome cimport FAULT_RESET, FAULT_STATUS, FILTER_TIMEOUT, OK
from cutthrough.policy.acl cimport BY_BREAKPOINT, BY_CONNECT, BY_FILTERS
from cutthrough.policy.faults import draw
from cutthrough.session.model.charge cimport admit_with_faults
from cutthrough.session.model.client cimport Client, is_last
from cutthrough.session.model.phase cimport PHASE_FILTER, parked
from cutthrough.session.model.rate_queue cimport end_queueing
from cutthrough.session.model.recording_mode cimport AWAITS_ROOM
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport HELD
from cutthrough.session.transfer.recording_room cimport end_waiting
from cutthrough.session.transfer.responder cimport is_with_player
from cutthrough.session.transfer.to_filters cimport begin_filters
from cutthrough.wire.names cimport M_CONNECT, M_HEAD
from cutthrough.wire.reply cimport reply_with_text


cdef int apply_faults(Client c) except -1:
    cdef int outcome
    if not is_due(c):
        return OK
    policy = c.snapshot.acl.policy
    rule = c.snapshot.acl.rules[c.request.rule]
    drawn = draw([policy.faults[name] for name in rule.faults])
    c.request.acted = True
    outcome = admit_with_faults(c, drawn.bandwidth, drawn.limit_data)
    if outcome != OK:
        return outcome
    if drawn.reset_peer:
        return parked(c.abort(FAULT_RESET, True))
    if drawn.status:
        return parked(answer(c, drawn.status))
    if drawn.latency_ms == 0:
        return OK
    c._set_state(HELD)
    c.silent_ms = c.poller.time_ms() + <int>drawn.latency_ms
    return parked(c.poller.arm(c, c.silent_ms))


cdef int end_hold(Client c) except -1:
    if c.request.queued:
        return end_queueing(c)
    if c.request.room == AWAITS_ROOM:
        return end_waiting(c)
    if is_with_player(c):
        c.extras.replay.refuse("replay_failed", "no answer within response_timeout")
        return 0
    if c.extras.filtering is not None:
        return c.refuse(FILTER_TIMEOUT)
    c.stamps.hook_us += end_brief_phase(&c.stamps)
    return c.resume(PHASE_FILTER)


cdef int filter_head(Client c) except -1:
    """Each head of a client's goes through the filters once."""
    if c.extras.filtering is not None or not c.request.acted or not c.request.acts & (
            <int>BY_CONNECT if c.request.is_tunnel else BY_FILTERS | BY_BREAKPOINT):
        return OK
    return parked(begin_filters(c))


cdef int answer(Client c, int status) except -1:
    cdef bint close = is_last(c)
    cdef bytes text
    if c.request.method > M_CONNECT:        # SOCKS, or no protocol that we speak
        return c.refuse(FAULT_STATUS)
    text = reply_with_text(status, "fault_status", "a fault of the rule", close,
                           c.request.method != M_HEAD)
    return c.reply(FAULT_STATUS, status, text, len(text), close)
