# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The operator's function is asked about a request that the rules let pass: both must agree.

    a cached verdict ───────────────────────────────> the next phase, or refused
    limits (they guard the hook) ─> DECIDE ─> verdict ─^
"""

from functools import partial

from libc.stdint cimport int64_t

from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.buffers cimport bytes_of
from cutthrough.outcome cimport DESTINATION_DENIED, OK, POLICY_UNAVAILABLE
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.decision_cache cimport Decision, DecisionCache
from cutthrough.session.model.charge cimport admit_user
from cutthrough.session.model.client cimport Client, extras_of
from cutthrough.session.model.inside cimport prints_of
from cutthrough.session.model.phase cimport PHASE_FAULTS, parked
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport DECIDE


cdef bint must_ask(Client c) except -1:
    if c.snapshot.hook is None:
        return False
    cdef DecisionCache verdicts = c.snapshot.verdicts
    cdef int64_t now_ms = c.poller.time_ms()
    cdef Decision decision = verdicts.find(c.account.name, c.key, now_ms, None)
    if decision is None and verdicts.by_fingerprints:
        decision = verdicts.find(c.account.name, c.key, now_ms, fingerprints_of(c))
    if decision is not None:
        extras_of(c).decision = decision
    return decision is None


cdef tuple fingerprints_of(Client c):
    """Returns the client's fingerprints that are known, by the log's names."""
    return () if prints_of(c) is None else tuple(prints_of(c).texts().items())


cdef int ask(Client c) except -1:
    cdef int outcome
    if must_ask(c):
        outcome = admit_user(c)         # limits guard the hook
        return outcome if outcome != OK else parked(ask_hook(c))
    if c.extras.decision is not None and not c.extras.decision.allow:
        return DESTINATION_DENIED
    return OK


def on_decided(Client c, request_id, decision):
    """The hook's answer: a Decision, None if it failed, a label if it was not called."""
    cdef int outcome
    if c.state != DECIDE or c.request_id != request_id:
        return                          # it has ended meanwhile
    try:
        c.poller.take_time()
        c.stamps.hook_us += end_brief_phase(&c.stamps)
        outcome = take_decision(c, decision)
        if outcome != OK:
            c.refuse(outcome)
        else:
            c.resume(PHASE_FAULTS)
    except BaseException:
        c.poller.contain(c)


cdef int ask_hook(Client c) except -1:
    cdef char text[ADDRESS_TEXT]
    cdef int n = print_address(&c.address, text)
    c._set_state(DECIDE)
    c.snapshot.hook.ask(
        c.account.name, c.key,
        c.snapshot.hook.details(
            c.account.groups, text[:n].decode(), method_of(c), fingerprints_of(c),
            own_method_of(c)),
        partial(on_decided, c, c.request_id), c.request_id)
    return 0


cdef object method_of(Client c):
    return "UPGRADE" if c.request.has_upgrade else own_method_of(c)


cdef object own_method_of(Client c):
    """The method as the client wrote it; for a plain request, from the rewritten head."""
    cdef const char *data
    cdef size_t n = 0
    if c.head == NULL:
        return "CONNECT"
    data = bytes_of(c.head)
    while data[n] != b" ":
        n += 1
    return data[:n].decode()


cdef int take_decision(Client c, decision) except -1:
    if decision is None:
        return POLICY_UNAVAILABLE           # it failed: fail closed
    if isinstance(decision, str):
        return OUTCOMES[decision]           # it was not called
    extras_of(c).decision = decision
    return OK if c.extras.decision.allow else DESTINATION_DENIED
