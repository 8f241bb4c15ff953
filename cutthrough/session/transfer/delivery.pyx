# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""An exchange ends early, and the bytes received so far are delivered all the same.

A reset discards the bytes that the kernel still holds for a peer: megabytes, if the peer is
slow. So an exchange that is cut short is ended in the mildest way that does not look whole:

    a length, or chunks            held bytes go out, then FIN: the length is not met, the
                                   last chunk is missing
    until close, and tunnels       held bytes go out, and are acknowledged; then RST, or a FIN
                                   without close_notify, if the origin's end was one

The wait is the state DELIVER. It begins only if bytes have to be waited for; otherwise the
end comes at once. No event reports that a peer has acknowledged the last byte, so the
kernel is polled (SIOCOUTQ), at first after a tick of the wheel, then after a quarter of the
time that has passed.

The wait is bounded: in each half_closed_timeout the peers have to take min_rate bytes a
second, and one byte at least, unless the limits hold the bytes back. There is no wait if a silence
ended the exchange, at a stop, at an operator's cut, if a reload forbids the destination, and after a
fault of our own.
"""

from libc.stdint cimport int64_t, uint64_t
from cutthrough.net cimport linux
from cutthrough.net.pump cimport (
    PUMP_AGAIN, PUMP_DONE, PUMP_EOF, PUMP_NO_ROOM, PUMP_SINK_FAILED, PUMP_SOURCE_FAILED, Pump,
    Pumped)
from cutthrough.net.relay cimport is_holding, lose, run_pump, stop_pump, throw_away
from cutthrough.net.sysio cimport BROKEN, CAN_READ, holds_back, untaken
from cutthrough.net.tcpinfo cimport has_ended
from cutthrough.outcome cimport (
    CLIENT_CLOSED, CLIENT_RESET, CUT, DESTINATION_DENIED, DRAINED, HALF_CLOSED_TIMEOUT,
    IDLE_TIMEOUT, INTERNAL_ERROR, OK, STOPPED, WRITE_TIMEOUT)
from cutthrough.session.model.broken cimport outcome_of_break
from cutthrough.session.model.charge cimport after_turn, before_turn, is_paced
from cutthrough.session.model.chunked_body cimport scan_of
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.context cimport Options
from cutthrough.session.model.flight_recorder cimport E_DOWN, E_UP, note
from cutthrough.session.model.state cimport DELIVER, HALF_CLOSED, RELAY, TUNNEL
from cutthrough.wire.http1 cimport HTTP_10

cdef enum:
    FIRST_LOOK_MS = 32      # a tick of the wheel: no deadline is more exact
    LAST_LOOK_MS = 1000


cdef int cut_exchange(Client c, int outcome) except -1:
    if c.state == DELIVER:
        return finish(c)                    # the wait itself is cut
    if c.state != RELAY and c.state != TUNNEL and c.state != HALF_CLOSED:
        return c.abort(outcome, True)
    if outcome == WRITE_TIMEOUT or outcome == CLIENT_RESET or outcome == CLIENT_CLOSED:
        return c.abort(outcome, True)       # there is no peer to deliver to
    if is_impatient(outcome) or c.origin is None:   # an answer of our own has no more to deliver
        return c.abort(outcome, True) if looks_whole(c) else end_short(c, outcome)
    c.relay.up.left = c.relay.down.left = 0
    if not looks_whole(c) and not is_holding(&c.relay.down):
        return end_short(c, outcome)
    return deliver(c, outcome, TO_CLIENT if c.state == RELAY else TO_CLIENT | TO_ORIGIN)


cdef bint is_impatient(int outcome) noexcept nogil:
    return (outcome == IDLE_TIMEOUT or outcome == HALF_CLOSED_TIMEOUT or outcome == CUT
            or outcome == DRAINED or outcome == STOPPED or outcome == INTERNAL_ERROR
            or outcome == DESTINATION_DENIED)


cdef bint looks_whole(Client c) noexcept nogil:
    """Would its client take a FIN here for the regular end? A client of HTTP/1.0 gets
    chunks decoded, until the close."""
    return c.request.is_tunnel or c.until_close or (
        scan_of(&c.relay.down) != NULL and c.request.minor == HTTP_10)


cdef int end_short(Client c, int outcome) except -1:
    """FIN. The kernel delivers the bytes that it holds for the client."""
    c.log_end(outcome)
    c.close_origin(True)
    c._clear_request()
    return c.linger(False)


cdef int deliver(Client c, int outcome, int sides) except -1:
    c.request.ending = <unsigned char>outcome
    c.request.sides = <unsigned char>sides
    # What nobody is to get is thrown away: a peer that wants to send first would else never
    # take the rest
    if c.request.is_tunnel and not sides & TO_CLIENT:
        lose(&c.relay.down)
    if c.request.is_tunnel and not sides & TO_ORIGIN:
        lose(&c.relay.up)
    # If a send has met the reset, no event reports that there is more to read
    c.sock.ready |= CAN_READ
    c.origin.sock.ready |= CAN_READ
    c._set_state(DELIVER)
    c.watch.look.passed = passed(c)
    return go_on(c)


cdef int go_on(Client c) except -1:
    cdef uint64_t up = c.relay.up.moved
    cdef uint64_t down = c.relay.down.moved
    cdef bint waits = False
    if c.usage.meter != NULL and not before_turn(c):
        c.relay.up.left = c.relay.down.left = 0
    if c.request.sides & TO_CLIENT:
        waits = is_under_way(c, &c.relay.down, c.relay.down.shut)
    elif c.relay.down.left > 0:
        throw_away(&c.relay.down)
    if c.request.sides & TO_ORIGIN:
        waits |= is_under_way(c, &c.relay.up, c.relay.up.shut)
    elif c.request.is_tunnel and c.relay.up.left > 0:
        throw_away(&c.relay.up)
    if c.request.ending == OK and not c.sock.ready & BROKEN:
        waits |= holds_back(&c.sock)        # the rest of a record
    c.count_moved()
    if c.usage.meter != NULL:
        after_turn(c)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_UP, 0, c.relay.up.moved - up)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_DOWN, 0, c.relay.down.moved - down)
    if not waits:
        return finish(c)
    cdef int64_t now_ms = c.poller.time_ms()
    cdef int64_t look_ms = min(max((now_ms - c.since_ms) // 4, FIRST_LOOK_MS), LAST_LOOK_MS)
    return c.poller.arm(c, min(c.silent_ms, now_ms + look_ms))


cdef bint is_under_way(Client c, Pump *p, bint shut) except -1:
    """Is there more for the sink, or has its peer not acknowledged all of it?"""
    cdef Pumped how
    if p.sink == NULL:                      # lost: its peer takes nothing
        return False
    if not shut:
        how = PUMP_SINK_FAILED if p.sink.ready & BROKEN else run_pump(p)
        if how == PUMP_SINK_FAILED or how == PUMP_NO_ROOM and is_holding(p):
            stop_pump(p)
            return False
        if how == PUMP_AGAIN:
            c.poller.call_again(c)
        if how == PUMP_SOURCE_FAILED or how == PUMP_NO_ROOM:
            p.left = 0
        elif how != PUMP_DONE and how != PUMP_EOF:
            return True
        if is_holding(p):
            return True
        if not looks_whole(c):
            return False
    return untaken(p.sink) > 0 and not (p.sink.ready & BROKEN and has_ended(p.sink))


cdef int finish(Client c) except -1:
    if c.request.ending == OK:
        return end_unfinished(c)
    if looks_whole(c):
        return c.abort(c.request.ending, True)
    return end_short(c, c.request.ending)


cdef int end_unfinished(Client c) except -1:
    """FIN, and no close_notify before it: see tunnel."""
    if c.sock.ready & BROKEN:
        return c.abort(outcome_of_break(c), True)
    linux.shutdown(c.sock.fd, linux.SHUT_WR)
    return c.abort(OK, False)


cdef int look_again(Client c) except -1:
    cdef const Options *options = &c.context.options
    cdef int64_t owed = (
        options.min_rate_bytes * options.timeout_ms[DELIVER] // options.min_rate_grace_ms)
    if c.poller.time_ms() >= c.silent_ms:
        if passed(c) - c.watch.look.passed < max(1, owed) and not is_paced(c):
            return c.abort(c.request.ending or WRITE_TIMEOUT, True)
        c.watch.look.passed = passed(c)
        c.extend()
    return go_on(c)


cdef int64_t passed(Client c) noexcept:
    """Bytes that the kernels of both peers have acknowledged."""
    return <int64_t>(c.relay.up.moved + c.relay.down.moved) - (
        untaken(&c.sock) + untaken(&c.origin.sock))
