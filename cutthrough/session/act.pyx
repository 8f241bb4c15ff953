# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""What the deciding rule does to a request that may pass, before it goes on: its faults.

    rules, hook ─> limits ─> HELD, for a latency ─> route

Faults are drawn once for a request or tunnel. A bound on bandwidth or data is a part of its
terms, so that the pumps pace it as they pace limits. If the rule depends on the address, this
comes once the address is known, before it is dialled.
"""

from http import HTTPStatus

from cutthrough.outcome cimport FAULT_RESET, FAULT_STATUS, OK
from cutthrough.policy.faults import draw
from cutthrough.session.charge cimport admit_with_faults
from cutthrough.session.client cimport Client, is_last
from cutthrough.session.state cimport HELD
from cutthrough.wire.names cimport M_CONNECT, M_HEAD


cdef int act(Client c) except -1:
    cdef int outcome
    policy = c.snapshot.acl.policy
    names = c.snapshot.acl.rules[c.request.rule].faults
    drawn = draw([policy.faults[name] for name in names])
    c.request.acted = True
    outcome = admit_with_faults(c, drawn.bandwidth, drawn.limit_data)
    if outcome != OK:
        return c.refuse(outcome)
    if drawn.reset_peer:
        return c.abort(FAULT_RESET, True)
    if drawn.status:
        return answer(c, drawn.status)
    if drawn.latency_ms == 0:
        return c.route(False)
    c._set_state(HELD)
    c.silent_ms = c.poller.time_ms() + <int>drawn.latency_ms
    return c.poller.arm(c, c.silent_ms)


cdef int end_hold(Client c) except -1:
    return c.route(False)


cdef int answer(Client c, int status) except -1:
    cdef bint close = is_last(c)
    cdef bytes text
    if c.request.method > M_CONNECT:        # SOCKS, or no protocol that we speak
        return c.refuse(FAULT_STATUS)
    text = reply_with_status(status, close, c.request.method != M_HEAD)
    return c.reply(FAULT_STATUS, status, text, len(text), close)


cdef bytes reply_with_status(int status, bint close, bint body):
    phrase = HTTPStatus(status).phrase if status in ASSIGNED else ""
    content = f"{status} fault_status: a fault of the rule\n"
    lines = [f"HTTP/1.1 {status} {phrase}", "Content-Type: text/plain; charset=utf-8",
             f"Content-Length: {len(content)}", "Proxy-Status: cutthrough; error="
             'proxy_internal_response; details="fault_status"', "Cache-Control: no-store"]
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n" + (content if body else "")).encode()


ASSIGNED = {int(one) for one in HTTPStatus}
