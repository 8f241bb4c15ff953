# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""TLS on a listener: the stage of the handshake.

A handshake costs a worker 0.2 to 0.5 ms in one piece, as much as thirty requests. So handshakes
have a share of each turn, in time: those begun in this turn one, and those put off until now
another, in their order. A flood of handshakes waits for itself; the connections that are
established have their turns between.

The number of handshakes under way is bounded as well. At the bound another connection with an
unfinished handshake or head is closed, the oldest of the client address with the most of them.

Before the handshake's end nothing can be sent, so each refusal is a close. The deadline is
`head_timeout`, and begins anew for the first request (R47).
"""

from libc.stdint cimport int64_t
from cutthrough.net.buffers cimport bytes_of, give_block
from cutthrough.net.sysio cimport clock_us
from cutthrough.net.transport cimport (
    HANDSHAKE_ALERT, HANDSHAKE_CLOSED, HANDSHAKE_DENIED, HANDSHAKE_DONE, HANDSHAKE_MORE,
    HANDSHAKE_NO_ROOM, HANDSHAKE_REJECTED, HANDSHAKE_RESET, HANDSHAKE_UNNAMED,
    HANDSHAKE_UNSHARED, KERNEL, TLS, Agreed, Greeting, greeting_at_hand, open_transport, transport_of)
from cutthrough.outcome cimport (
    CERTIFICATE_REJECTED, CLIENT_CLOSED, CLIENT_RESET, OVERLOADED, TLS_ALERT, TLS_CERTIFICATE,
    TLS_FAILED, TLS_NAME, TLS_UNSHARED)
from cutthrough.session.model.client cimport Client, rest
from cutthrough.session.model.counters cimport BOUND_HANDSHAKES
from cutthrough.session.model.pinned cimport note_failure
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.model.shed cimport shed_part
from cutthrough.session.model.stage cimport STAGE_TLS, STAGE_TLS_LATE
from cutthrough.session.model.stamps cimport end_brief_phase

cdef enum:
    # Of each turn, for handshakes begun in it, and again for those put off. Two handshakes
    # with an ECDSA key: other connections wait no longer than for a bulk transfer's share
    TURN_US = 1000
    MOST_SHED = 8

# By whether it was put off: the batch that the time belongs to, and the time
cdef int64_t[2] batch_us
cdef int64_t[2] spent_us


cdef Agreed agreed              # of the last call of agreed_by or agreed_behind


cdef bint shake_hands(Client c) except -1:
    cdef int late = (c.stages & STAGE_TLS_LATE) != 0
    cdef int64_t began_us
    cdef int answer
    if c.sock.kind == KERNEL and not put_transport(c, NULL):
        if c.stamps.start_us == 0:
            c.begin()
        c.abort(OVERLOADED, True)
        return False
    if batch_us[late] != c.poller.now_us:
        batch_us[late] = c.poller.now_us
        spent_us[late] = 0
    if spent_us[late] >= TURN_US:
        c.stages |= STAGE_TLS_LATE
        c.poller.call_again(c)
        return False
    if c.stamps.start_us == 0:
        c.begin()                       # from here on the ending is logged
    if c.checks == 0 and not c.entrance.is_inside:
        c.checks = c.context.client_checks
    began_us = clock_us()
    answer = try_handshake(c)
    spent_us[late] += clock_us() - began_us
    if answer == HANDSHAKE_DONE:
        c.stages &= ~(STAGE_TLS | STAGE_TLS_LATE)
        c.stamps.client_tls_us = end_brief_phase(&c.stamps)
        if not c.entrance.is_inside and certified_name(c) is None:
            c.checks = 0
        if c.context.observer is not None:
            c.context.observer.on_client_tls(c)
        return True
    c.stages &= ~STAGE_TLS_LATE
    if answer == HANDSHAKE_MORE:
        rest(c)
    else:
        if c.entrance.is_inside:
            note_failure(c, -answer)
            c.stamps.client_tls_us = end_brief_phase(&c.stamps)
        c.abort(outcome_of(-answer, c.entrance.is_inside), answer == -HANDSHAKE_NO_ROOM)
    return False


cdef int try_handshake(Client c) except? -1:
    cdef Greeting *greeting = greeting_at_hand()
    cdef int answer
    cdef int n = 0
    greeting.n = 0
    greeting.is_wanted = c.context.options.prints != 0 and (
        c.entrance.prints is None or not c.entrance.prints.is_greeted)
    answer = transport_of(&c.sock).handshake(&c.sock)
    while answer == -HANDSHAKE_NO_ROOM and n < MOST_SHED and shed_part(c, BOUND_HANDSHAKES):
        answer = transport_of(&c.sock).handshake(&c.sock)
        n += 1
    if greeting.is_wanted and (greeting.n or answer == HANDSHAKE_DONE):
        if c.entrance.prints is None:
            if not c.entrance.is_inside:
                c.entrance = c.entrance.copy()
            c.entrance.prints = Prints.__new__(Prints)
        c.entrance.prints.read_hello(greeting.data, greeting.n, c.context.options.prints)
    greeting.is_wanted = False
    return answer


cdef bint put_transport(Client c, const char *name) except -1:
    """After other stages, or a look at the first byte: the bytes left are the handshake's."""
    cdef int n = 0
    while open_transport(&c.sock, TLS, c.sock.slot, name) < 0:
        if name == NULL or n == MOST_SHED or not shed_part(c, BOUND_HANDSHAKES):
            return False
        n += 1
    n = 0
    if c.input == NULL:
        return True
    while not transport_of(&c.sock).unread(
            &c.sock, bytes_of(c.input) + c.input.start, c.input.end - c.input.start):
        if n == MOST_SHED or not shed_part(c, BOUND_HANDSHAKES):
            return False
        n += 1
    give_block(&c.input)
    return True


cdef int outcome_of(int failure, bint is_inside) noexcept nogil:
    if failure == HANDSHAKE_CLOSED:
        return CLIENT_CLOSED
    if failure == HANDSHAKE_RESET:
        return CLIENT_RESET
    if failure == HANDSHAKE_UNSHARED:
        return TLS_UNSHARED
    if failure == HANDSHAKE_UNNAMED:
        return TLS_NAME
    if failure == HANDSHAKE_REJECTED and is_inside:
        return CERTIFICATE_REJECTED
    if failure == HANDSHAKE_ALERT or failure == HANDSHAKE_REJECTED:
        return TLS_ALERT
    if failure == HANDSHAKE_DENIED:
        return TLS_CERTIFICATE
    return OVERLOADED if failure == HANDSHAKE_NO_ROOM else TLS_FAILED


cdef bytes certified_name(Client c):
    cdef void *name
    if c.sock.kind == KERNEL or transport_of(&c.sock).peer == NULL:
        return None
    name = transport_of(&c.sock).peer(&c.sock)
    return None if name == NULL else <bytes>name


cdef const Agreed *agreed_behind(Client c) noexcept:
    if c.origin is None or c.origin.sock.kind == KERNEL or (
            transport_of(&c.origin.sock).describe == NULL):
        return NULL
    return &agreed if transport_of(&c.origin.sock).describe(&c.origin.sock, &agreed) else NULL


cdef const Agreed *agreed_by(Client c) noexcept:
    if c.sock.kind == KERNEL or transport_of(&c.sock).describe == NULL:
        return NULL
    return &agreed if transport_of(&c.sock).describe(&c.sock, &agreed) else NULL
