# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The faults of the deciding rule, applied to a request before it goes on, its filters and breakpoint.

    rules, hook ─> limits ─> HELD, for a latency ─> HELD, by filters ─> route

Faults are drawn once for a request or tunnel. A bound on bandwidth or data is a part of its
terms, so that the pumps pace it as they pace limits. If the rule depends on the address, this
comes once the address is known, before it is dialled.
"""

from cutthrough.outcome cimport FAULT_RESET, FAULT_STATUS, OK
from cutthrough.policy.acl cimport BY_BREAKPOINT, BY_FILTERS
from cutthrough.policy.faults import draw
from cutthrough.session.charge cimport admit_with_faults
from cutthrough.session.client cimport Client, is_last
from cutthrough.session.filtering cimport begin_filters, end_wait
from cutthrough.session.phases cimport end_brief_phase
from cutthrough.session.recording_mode cimport AWAITS_ROOM
from cutthrough.session.recording_room cimport end_waiting
from cutthrough.session.state cimport HELD
from cutthrough.wire.names cimport M_CONNECT, M_HEAD
from cutthrough.wire.reply cimport reply_with_text


cdef int act(Client c) except -1:
    cdef int outcome
    policy = c.snapshot.acl.policy
    rule = c.snapshot.acl.rules[c.request.rule]
    drawn = draw([policy.faults[name] for name in rule.faults])
    c.request.acted = True
    outcome = admit_with_faults(c, drawn.bandwidth, drawn.limit_data)
    if outcome != OK:
        return c.refuse(outcome)
    if drawn.reset_peer:
        return c.abort(FAULT_RESET, True)
    if drawn.status:
        return answer(c, drawn.status)
    if drawn.latency_ms == 0:
        return go_on(c)
    c._set_state(HELD)
    c.silent_ms = c.poller.time_ms() + <int>drawn.latency_ms
    return c.poller.arm(c, c.silent_ms)


cdef int end_hold(Client c) except -1:
    if c.request.room == AWAITS_ROOM:
        return end_waiting(c)
    return go_on(c) if c.filtering is None else end_wait(c)


cdef int go_on(Client c) except -1:
    c.stamps.hook_us += end_brief_phase(&c.stamps)
    if c.request.acts & (BY_FILTERS | BY_BREAKPOINT) and not c.request.is_tunnel:
        return begin_filters(c)
    return c.route(False)


cdef int answer(Client c, int status) except -1:
    cdef bint close = is_last(c)
    cdef bytes text
    if c.request.method > M_CONNECT:        # SOCKS, or no protocol that we speak
        return c.refuse(FAULT_STATUS)
    text = reply_with_text(status, "fault_status", "a fault of the rule", close,
                           c.request.method != M_HEAD)
    return c.reply(FAULT_STATUS, status, text, len(text), close)
