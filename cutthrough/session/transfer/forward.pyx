# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A plain request: one exchange with the origin, message by message.

The rewritten head goes up, then the body through the up pump; session/transfer/response brings
the answer down. Both connections are used again only if both messages ended as their heads
announced; any doubt ends both (R6, R18).
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from cutthrough.net.buffers cimport Block, bytes_of, give_block, shrink_block
from cutthrough.net.pump cimport (
    PUMP_AGAIN, PUMP_DONE, PUMP_EOF, PUMP_NO_ROOM, PUMP_PACED, PUMP_REFUSED, PUMP_SINK_FAILED,
    PUMP_SOURCE_FAILED, PUMP_STARVED, PUMP_STUCK, Pump, Pumped, Tap)
from cutthrough.net.relay cimport feed, is_holding, push, run_pump, start_pump, stop_pump
from cutthrough.net.sysio cimport CAN_READ
from cutthrough.outcome cimport (
    BAD_FRAMING, CLIENT_CLOSED, HEAD_TOO_LARGE, OK, OVERLOADED)
from cutthrough.session.judge.authorize cimport judge_late
from cutthrough.session.model.awaited cimport NOBODY, SENDER, TAKER
from cutthrough.session.model.broken cimport outcome_of_client
from cutthrough.session.model.charge cimport after_turn, before_turn, outcome_of_meter
from cutthrough.session.model.chunked_body cimport scan_of, scan_through
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.extras cimport NOTHING
from cutthrough.session.model.flight_recorder cimport E_UP, note
from cutthrough.session.model.origin_streams cimport is_unread
from cutthrough.session.model.stamps cimport note_sent
from cutthrough.session.model.state cimport RELAY, REQUEST, RESPONSE
from cutthrough.session.transfer.headers cimport head_up, show_head
from cutthrough.session.transfer.min_rate cimport wait_for
from cutthrough.session.transfer.recording_room cimport outcome_of_length, outcome_of_loss
from cutthrough.session.transfer.response cimport pump_down, read_response
from cutthrough.session.transfer.responder cimport up_sluice, write_head_up
from cutthrough.session.transfer.sluice cimport Sluice, put_all, run_sluice
from cutthrough.session.transfer.to_filters cimport begin_upload, takes_upload
from cutthrough.wire.framing cimport BODY_CHUNKED, BODY_LENGTH, BODY_NONE, Framing


cdef bint expect_body(Client c, const Framing *framing) noexcept:
    cdef Pump *up = &c.relay.up
    up.may_splice = c.context.options.splice
    start_pump(up, &c.sock, NULL, framing.length if framing.kind == BODY_LENGTH else 0)
    c.up_open = framing.kind != BODY_NONE
    return framing.kind != BODY_CHUNKED or scan_through(
        up, False, framing.trailers, False, c.context.options.max_body)


cdef int send_request(Client c) except -1:
    cdef Pump *up = &c.relay.up
    cdef Block *ahead = c.input
    cdef const char *head
    cdef size_t head_len, n = 0
    cdef int64_t used
    if c.request.resumes:
        return resume(c)
    if c.extras is not NOTHING and takes_upload(c):
        begin_upload(c)
        return read_response(c)
    head = head_up(c, &head_len)
    if head == NULL:
        return c.refuse(HEAD_TOO_LARGE)
    up.sink = &c.origin.sock
    c.relay.down.may_splice = c.context.options.splice
    start_pump(&c.relay.down, &c.origin.sock, &c.sock, 0)
    c._set_state(REQUEST if c.up_open else RESPONSE)
    if c.up_open and ahead != NULL:
        n = ahead.end - ahead.start
        c.input = NULL
    if up.tap != NULL and head != bytes_of(c.head):
        used = feed_changed(c, head, head_len, bytes_of(ahead) + ahead.start if n else NULL, n)
    else:
        used = feed(up, head, head_len, bytes_of(ahead) + ahead.start if n else NULL, n)
    # Bytes are counted as those of the request that the client sent
    if head_len > c.head.end:
        up.moved -= min(up.moved, <uint64_t>(head_len - c.head.end))
    else:
        up.moved += c.head.end - head_len
    note(c.context.recorder, <void *>c, c.poller.now_us, E_UP, 0, up.moved)
    if n:
        if 0 <= used < <int64_t>n and up.filter == NULL:
            ahead.start += <uint32_t>used       # the next request's bytes
            c.input = ahead
            shrink_block(&c.input)
        else:
            give_block(&ahead)
    if used == -2:
        return on_refused_body(c)
    if used < 0:
        return on_sink_failed(c) if up.error else c.refuse(OVERLOADED)
    if c.up_open:
        pump_up(c)
    elif c.context.observer is not None:
        note_sent(&c.stamps)
    return read_response(c)


cdef int resume(Client c) except -1:
    """Sends the bytes that an origin has not read, and then the rest of the body."""
    cdef Sluice up = up_sluice(c)
    cdef int outcome
    c.request.resumes = False
    c.relay.up.sink = &c.origin.sock
    c.relay.up.error = 0
    if is_holding(&c.relay.down):           # our own 100
        c.relay.down.source = &c.origin.sock
    else:
        start_pump(&c.relay.down, &c.origin.sock, &c.sock, 0)
    c._set_state(REQUEST if c.up_open else RESPONSE)
    if up is not None:                      # see filtering.dial_anew
        outcome = judge_late(c)
        if outcome != OK:
            return c.refuse(outcome)
        unsent, up.unsent = up.unsent, None
        if not write_head_up(c, up, up.pump.tap != NULL and up.pump.tap.is_chunked):
            return 0
        put_all(up, unsent)
    pump_up(c)
    return read_response(c)


cdef int64_t feed_changed(Client c, const char *head, size_t head_len, char *data,
                          size_t n) noexcept:
    """As feed, of a head that the tap does not get as it is."""
    cdef Pump *up = &c.relay.up
    cdef Tap *tap = up.tap
    cdef bint sent
    show_head(c, up)
    up.tap = NULL
    sent = push(up, head, head_len, NULL, 0)
    up.tap = tap
    return feed(up, NULL, 0, data, n) if sent else -1


cdef int on_client(Client c) except -1:
    cdef Pumped how
    if c.up_open:
        pump_up(c)
    if c.state == RELAY:
        return pump_down(c)
    # A 1xx head that the client did not take at once; `left` is 0, so nothing is read
    if (c.state == REQUEST or c.state == RESPONSE) and is_holding(&c.relay.down):
        how = run_pump(&c.relay.down)
        if how == PUMP_SINK_FAILED or how == PUMP_NO_ROOM:
            return c.abort(outcome_of_client(c.relay.down.error), True)
    return 0


cdef int on_origin(Client c) except -1:
    if c.origin is None:                    # of an interception, before its request has a way
        return 0
    if is_unread(c):                        # bytes read from the client now would be lost
        return read_response(c)
    if c.up_open or is_holding(&c.relay.up):
        pump_up(c)
    if c.state == RELAY:
        return pump_down(c)
    return read_response(c)


cdef int pump_up(Client c) except -1:
    cdef Pump *up = &c.relay.up
    cdef uint64_t before = up.moved
    cdef int whom = SENDER
    cdef int outcome
    cdef Pumped how
    if c.extras.up is not None:
        return run_sluice(<Sluice>c.extras.up)
    if up.sink == NULL:
        return 0                            # the origin takes no more: see on_sink_failed
    if c.usage.meter != NULL and not before_turn(c):
        return c.refuse(outcome_of_meter(c))
    how = run_pump(up)
    c.count_moved()
    note(c.context.recorder, <void *>c, c.poller.now_us, E_UP, 0, up.moved - before)
    if c.usage.meter != NULL:
        after_turn(c)
    outcome = outcome_of_loss(c)
    if outcome != OK:
        return c.refuse(outcome)
    if how == PUMP_DONE:
        if c.up_open:
            c.up_open = False
            if c.context.observer is not None:
                note_sent(&c.stamps)
            if up.filter != NULL:
                c.input = scan_of(up).surplus
                scan_of(up).surplus = NULL
                if scan_of(up).no_room:
                    c.request.persistent = False        # the bytes that followed are lost (R6)
                    return c.refuse(OVERLOADED)
            if c.state == REQUEST:
                return c._set_state(RESPONSE)
        return 0
    if how == PUMP_EOF:
        return c.abort(CLIENT_CLOSED, True)
    if how == PUMP_SOURCE_FAILED:
        return c.abort(outcome_of_client(up.error), True)
    if how == PUMP_SINK_FAILED:
        return on_sink_failed(c)
    if how == PUMP_REFUSED:
        return on_refused_body(c)
    if how == PUMP_NO_ROOM:
        return c.refuse(OVERLOADED)
    if how == PUMP_AGAIN:
        c.poller.call_again(c)
    elif how == PUMP_STARVED:
        c.poller.call_when_room(c)
    if how == PUMP_STUCK:
        whom = TAKER
    elif how == PUMP_PACED or c.waits_for_100():
        whom = NOBODY                       # a client that we let wait owes nothing yet
    # After the response has begun the two sides may be talking: no rate is owed then
    if (c.state == REQUEST and wait_for(c, whom)) or (
            up.moved != before and (c.state == REQUEST or c.state == RELAY)):
        return c.extend()
    return 0


cdef int on_refused_body(Client c) except -1:
    return c.refuse(outcome_of_length(c) if scan_of(&c.relay.up).too_large else BAD_FRAMING)


cdef int on_sink_failed(Client c) except -1:
    """The origin takes no more of the request. It may have answered all the same
    (RFC 9112 section 9.5): reads the answer, and sends nothing more."""
    stop_pump(&c.relay.up)
    c.relay.up.sink = NULL
    c.relay.up.left = 0                     # it waits for no allowance
    c.origin.sock.ready |= CAN_READ
    return read_response(c)
