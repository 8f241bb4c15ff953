# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Bytes inside an intercepted connection that are no HTTP pass as they are.

    TLS ─> first bytes ─> HTTP ─> head, request, request …
      │         └> others ─┐
      └> a greeting ───────┴─> a tunnel between both handshakes, judged as its CONNECT was

If the handshake has agreed on a protocol (ALPN), that is HTTP. Else the first bytes of either
side decide: those of a client once no origin can read a request in them, those of an origin at
once.
The tunnel has its own line in the log and its own charge against limits.
"""

from cutthrough.net.connector cimport Upstream
from cutthrough.net.sysio cimport CAN_READ, try_peek
from cutthrough.net.transport cimport Agreed
from cutthrough.outcome cimport OK
from cutthrough.session.judge.authenticate cimport take_outer_user
from cutthrough.session.judge.secure cimport agreed_by
from cutthrough.session.model.client cimport Client, Observer
from cutthrough.session.model.inside cimport Inside, pin_tunnel
from cutthrough.session.model.phase cimport PHASE_JUDGE
from cutthrough.session.model.stage cimport STAGE_TRANSPARENT
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.wire.names cimport M_OTHER, M_TUNNEL
from cutthrough.wire.openings cimport (
    HTTP, UNDECIDED, UNKNOWN, Protocol, read_inner_opening, read_origin_opening)

cdef enum:
    MOST_GREETING = 1024        # bytes looked at of an origin that speaks first


cdef int read_inside(void *state, const char *data, size_t n, size_t *used) noexcept nogil:
    cdef Protocol protocol = read_inner_opening(data, n)
    (<Protocol *>state)[0] = protocol
    return protocol != UNDECIDED


cdef bint take_inside(Client c, const void *state, Reply *reply) except -1:
    cdef Protocol protocol = (<const Protocol *>state)[0]
    return True if protocol == HTTP else begin_inner_tunnel(c, protocol)


cdef int look_inside(Client c) except -1:
    cdef Inside inside = <Inside>c.entrance
    cdef const Agreed *agreed = agreed_by(c)
    if inside.only_http or (agreed != NULL and agreed.alpn_len):
        return 0
    c.stages = STAGE_TRANSPARENT
    c.request.method = M_OTHER
    # None: the rule replays. Its event came before
    if inside.spare is not None and inside.spare.sock.ready & CAN_READ:
        c.poller.call_again(inside.spare)
    return 0


cdef bint begin_by_greeting(Client c, Upstream upstream) except -1:
    cdef char[MOST_GREETING] data
    cdef ssize_t n
    cdef Protocol protocol
    if not c.stages & STAGE_TRANSPARENT or not upstream.sock.ready & CAN_READ:
        return False
    n = try_peek(&upstream.sock, data, MOST_GREETING)
    protocol = HTTP if n <= 0 else read_origin_opening(data, n)
    if protocol == HTTP:                        # a 408 perhaps, if the client sends nothing
        return False
    c.stages = 0
    if c.stamps.start_us == 0:
        c.begin()
    if begin_inner_tunnel(c, UNKNOWN if protocol == UNDECIDED else protocol):
        c.resume(PHASE_JUDGE)
    return True


cdef bint begin_inner_tunnel(Client c, Protocol protocol) except -1:
    """Begins a tunnel inside an interception, with the user and the destination of the CONNECT. False:
    it has been refused."""
    cdef int outcome
    c.request.method = M_TUNNEL
    c.request.is_tunnel = True
    c.snapshot = c.context.snapshot
    c.stamps.head_us = end_brief_phase(&c.stamps)
    pin_tunnel(c)
    c.extras.opening.inside = protocol
    if c.context.observer is not None:
        (<Observer>c.context.observer).on_request(c, NULL, NULL)
    outcome = take_outer_user(c, <Inside>c.entrance)
    if outcome != OK:
        c.refuse(outcome)
    return outcome == OK
