# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A plain request: one exchange with the origin, message by message.

The rewritten head goes up, then the body through the up pump. The response's head is read,
because it says how the response ends (RFC 9112 section 6.3); then its body comes down
through the down pump, counted by length, or scanned for the last chunk, or until the origin
closes. Both connections are used again only if both messages ended as their heads
announced; any doubt ends both (R6, R18).
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy
from cutthrough.net.buffers cimport (
    ANSWER_BLOCK, COPY_BLOCK, COPY_BYTES, HEAD_BLOCK, OF_REQUESTS, Block, bytes_of,
    give_block, head_scratch, keep_bytes, scratch, shrink_block)
from cutthrough.net.linux cimport EAGAIN, EPIPE
from cutthrough.net.relay cimport (
    PUMP_AGAIN, PUMP_DONE, PUMP_EOF, PUMP_NO_ROOM, PUMP_PACED, PUMP_REFUSED, PUMP_SINK_FAILED,
    PUMP_SOURCE_FAILED, PUMP_STARVED, PUMP_STUCK, Pump, Pumped, feed, is_holding, push,
    run_pump, start_pump, stop_pump)
from cutthrough.net.sysio cimport CAN_READ, try_recv
from cutthrough.outcome cimport (
    BAD_FRAMING, BAD_RESPONSE, BAD_RESPONSE_FRAMING, BODY_TOO_LARGE, CLIENT_CLOSED,
    CLIENT_RESET, DESTINATION_DENIED, OK, ORIGIN_CLOSED, ORIGIN_RESET, OVERLOADED,
    QUOTA_EXCEEDED, RESPONSE_TRUNCATED, UPGRADE_FAILED)
from cutthrough.session.authorize cimport is_cut_meanwhile
from cutthrough.session.client cimport Client, Scan
from cutthrough.session.awaited cimport NOBODY, READER, SENDER, TAKER
from cutthrough.session.min_rate cimport wait_for
from cutthrough.session.phases cimport end_phase
from cutthrough.session.request cimport Request
from cutthrough.session.flight_recorder cimport E_ANSWER, E_DOWN, E_ORIGIN_ENDED, E_UP, note
from cutthrough.session.state cimport RELAY, REQUEST, RESPONSE
from cutthrough.session.tunnel cimport start_tunnel
from cutthrough.session.charge cimport admit_tunnel, after_turn, before_turn
from cutthrough.wire.chunks cimport scan_chunks, start_chunks
from cutthrough.wire.framing cimport (
    BODY_CHUNKED, BODY_LENGTH, BODY_NONE, BODY_UNTIL_CLOSE, Framing, read_response_framing)
from cutthrough.wire.http1 cimport (
    HTTP_10, HTTP_11, MAX_FIELDS, Head, HeadLimits, has_token, parse_request,
    parse_response)
from cutthrough.wire.names cimport F_DATE, F_UPGRADE
from cutthrough.wire.rewrite cimport REWRITE_ROOM, build_response_head

cdef enum:
    MOST_INTERIM = 32           # 1xx heads before the final one; no 1xx is ever needed twice
    # Bytes read, with the part of a head already here: both, rewritten, may have to be kept
    MOST_READ = COPY_BLOCK - MAX_FIELDS - REWRITE_ROOM

cdef Head head                  # of the response being read; used within one call only


cdef bint expect_body(Client c, const Framing *framing) noexcept:
    cdef Pump *up = &c.relay.up
    up.may_splice = c.context.may_splice
    start_pump(up, &c.sock, NULL, framing.length if framing.kind == BODY_LENGTH else 0)
    c.up_open = framing.kind != BODY_NONE
    return framing.kind != BODY_CHUNKED or scan_through(
        up, &c.up_scan, False, framing.trailers, False, c.context.most_body)


cdef int send_request(Client c) except -1:
    cdef Pump *up = &c.relay.up
    cdef Block *ahead = c.input
    cdef size_t n = 0
    cdef int64_t used
    up.sink = &c.origin.sock
    c.relay.down.may_splice = c.context.may_splice
    start_pump(&c.relay.down, &c.origin.sock, &c.sock, 0)
    c._set_state(REQUEST if c.up_open else RESPONSE)
    if c.up_open and ahead != NULL:
        n = ahead.end - ahead.start
        c.input = NULL
    used = feed(up, bytes_of(c.head), c.head.end,
                bytes_of(ahead) + ahead.start if n else NULL, n)
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
    return read_response(c)


cdef int on_client(Client c) except -1:
    if c.up_open:
        pump_up(c)
    if c.state == RELAY:
        return pump_down(c)
    # A 1xx head that the client did not take at once; `left` is 0, so nothing is read
    if (c.state == REQUEST or c.state == RESPONSE) and is_holding(&c.relay.down) and (
            run_pump(&c.relay.down) == PUMP_SINK_FAILED):
        return c.abort(CLIENT_RESET, True)
    return 0


cdef int on_origin(Client c) except -1:
    if c.up_open or is_holding(&c.relay.up):
        pump_up(c)
    if c.state == RELAY:
        return pump_down(c)
    return read_response(c)


cdef int pump_up(Client c) except -1:
    cdef Pump *up = &c.relay.up
    cdef uint64_t before = up.moved
    cdef int whom = SENDER
    cdef Pumped how
    if up.sink == NULL:
        return 0                            # the origin takes no more: see on_sink_failed
    if c.usage.meter != NULL and not before_turn(c):
        return c.refuse(QUOTA_EXCEEDED)
    how = run_pump(up)
    c.count_moved()
    note(c.context.recorder, <void *>c, c.poller.now_us, E_UP, 0, up.moved - before)
    if c.usage.meter != NULL:
        after_turn(c)
    if how == PUMP_DONE:
        if c.up_open:
            c.up_open = False
            if up.filter != NULL:
                c.input = c.up_scan.surplus
                c.up_scan.surplus = NULL
                if c.up_scan.no_room:
                    c.request.persistent = False        # the bytes that followed are lost (R6)
                    return c.refuse(OVERLOADED)
            if c.state == REQUEST:
                return c._set_state(RESPONSE)
        return 0
    if how == PUMP_EOF:
        return c.abort(CLIENT_CLOSED, True)
    if how == PUMP_SOURCE_FAILED:
        return c.abort(CLIENT_RESET, True)
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
    return c.refuse(BODY_TOO_LARGE if c.up_scan.too_large else BAD_FRAMING)


cdef int on_sink_failed(Client c) except -1:
    """The origin takes no more of the request. It may have answered all the same
    (RFC 9112 section 9.5): reads the answer, and sends nothing more."""
    stop_pump(&c.relay.up)
    c.relay.up.sink = NULL
    c.origin.sock.ready |= CAN_READ
    return read_response(c)


cdef bint was_reset(Client c) noexcept:
    """The kernel reports a reset once: if a send met it, a read sees an end. Only behind a
    FIN the send gets EPIPE, and the bytes that had come until then are whole."""
    return c.relay.up.error != 0 and c.relay.up.error != EPIPE


cdef int read_response(Client c) except -1:
    """Reads until the head is whole or the socket is dry: behind half a head there may
    be an end of stream that no further event reports. Bounded by the head's limits."""
    while (c.state == REQUEST or c.state == RESPONSE) and c.origin.sock.ready & CAN_READ:
        read_some(c)
    return 0


cdef int read_some(Client c) except -1:
    cdef char *data = scratch()
    cdef size_t held = 0
    cdef ssize_t n
    if c.partial != NULL:
        held = c.partial.end
        memcpy(data, bytes_of(c.partial), held)
    n = try_recv(&c.origin.sock, data + held, min(<size_t>COPY_BYTES, MOST_READ - held))
    if n == -EAGAIN:
        return 0
    give_block(&c.partial)
    if n <= 0:
        note(c.context.recorder, <void *>c, c.poller.now_us, E_ORIGIN_ENDED, 0, -n)
        return on_no_response(
            c, ORIGIN_CLOSED if n == 0 and not was_reset(c) else ORIGIN_RESET, held)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_ANSWER, 0, n)
    if c.stamps.first_byte_us == 0:
        c.stamps.first_byte_us = end_phase(&c.stamps)
    return on_response(c, data, held + n, held)


cdef int on_no_response(Client c, int outcome, size_t held) except -1:
    """A pooled connection may die the moment it is used: the request is retried on a fresh
    one if it cannot have acted twice (R19)."""
    cdef Request *r = &c.request
    if c.origin.reused and r.can_retry and not r.retried and held == 0 and r.interim == 0:
        r.retried = True
        c.context.counters.retried += 1
        end_phase(&c.stamps)                # the dead connection's time is no look-up's
        c.close_origin(False)
        stop_pump(&c.relay.up)
        c.count_moved()
        c.told_up = 0
        start_pump(&c.relay.up, &c.sock, NULL, 0)
        return c.route(True)
    return c.refuse(outcome)


cdef int on_response(Client c, char *data, size_t n, size_t seen) except -1:
    cdef Request *r = &c.request
    cdef Framing framing
    cdef int used
    while True:
        used = parse_response(&head, data, n, seen, &c.context.answer_limits)
        if used < 0:
            return c.refuse(-used)
        if used == 0:
            c.partial = keep_bytes(data, n, OF_REQUESTS)
            return 0 if c.partial != NULL else c.refuse(OVERLOADED)
        if head.status < 200 and read_response_framing(&head, data, r.method, &framing) < 0:
            return c.refuse(BAD_RESPONSE_FRAMING)
        if head.status == 101:
            return on_upgraded(c, data, n, used)
        if head.status >= 200:
            return on_final_head(c, data, n, used)
        if head.status == 100 and r.awaits_100:
            r.awaits_100 = False
            if c.state == REQUEST:
                c.extend()                  # the client's turn: its whole deadline from now
        r.interim += 1
        if r.interim > MOST_INTERIM:
            return c.refuse(BAD_RESPONSE)
        if r.minor == HTTP_11 and not pass_head(c, data, False, False, False):
            return 0
        data += used
        n -= used
        seen = 0
        if n == 0:
            return 0


cdef bint pass_head(Client c, const char *data, bint close, bint chunked,
                    bint upgrade) except -1:
    """Pushes the head alone. False: the exchange has been ended."""
    cdef char *out = head_scratch()
    cdef int n = build_response_head(out, ANSWER_BLOCK, &head, data, c.context.pseudonym,
                                     c.context.pseudonym_len, close, chunked, upgrade, NULL)
    if n < 0:
        c.refuse(-n)
        return False
    if not push(&c.relay.down, out, n, NULL, 0):
        c.abort(CLIENT_RESET if c.relay.down.error else OVERLOADED, True)
        return False
    return True


cdef int on_final_head(Client c, char *data, size_t n, int used) except -1:
    cdef Request *r = &c.request
    cdef Pump *down = &c.relay.down
    cdef char *out = head_scratch()
    cdef const char *date = NULL
    cdef Framing framing
    cdef int64_t fed
    cdef uint64_t moved
    cdef bint chunked, says_close
    cdef int out_len = read_response_framing(&head, data, r.method, &framing)
    if out_len < 0:
        return c.refuse(-out_len)
    chunked = framing.kind == BODY_CHUNKED
    c.until_close = framing.kind == BODY_UNTIL_CLOSE
    r.closing = (not r.persistent or c.up_open or c.until_close or c.context.draining
                 or r.minor == HTTP_10)
    # 417 to an expectation: curl retries without it, unless there is a `close`. The connection
    # ends all the same, by a FIN: the next bytes may be a body or a request (R6).
    says_close = r.closing and not (head.status == 417 and r.awaits_100 and r.persistent
                                    and not c.until_close and not c.context.draining)
    if not head.count[F_DATE]:
        date = c.context.date()
    out_len = build_response_head(
        out, ANSWER_BLOCK, &head, data, c.context.pseudonym, c.context.pseudonym_len,
        says_close, chunked and r.minor == HTTP_11, False, date)
    if out_len < 0:
        return c.refuse(-out_len)
    down.left = framing.length if framing.kind == BODY_LENGTH else (
        -1 if c.until_close else 0)
    if chunked and not scan_through(
            down, &c.down_scan, r.minor == HTTP_10, framing.trailers, True, 0):
        return c.refuse(OVERLOADED)
    moved = down.moved
    fed = feed(down, out, out_len, data + used, n - used)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_DOWN, 0, down.moved - moved)
    if fed == -2:
        return c.refuse(BAD_RESPONSE_FRAMING)
    r.status = head.status
    if fed < 0:
        return c.abort(CLIENT_RESET if down.error else OVERLOADED, True)
    # Bytes behind the end belong to no request of ours: never pool that connection (R18).
    # Nor if the answer did not wait for the whole request, or for the 100 that the body was
    # to wait for: an origin that takes the rest for its next request answers twice, and
    # the second answer would go to another client.
    r.origin_persistent = (framing.persistent and not r.marks_origin and not r.awaits_100
                           and fed == <int64_t>(n - used) and not c.up_open
                           and c.relay.up.sink != NULL and not is_holding(&c.relay.up))
    c._set_state(RELAY)
    return pump_down(c)


cdef int pump_down(Client c) except -1:
    cdef Pump *down = &c.relay.down
    cdef uint64_t before = down.moved
    cdef Pumped how
    if c.usage.meter != NULL and not before_turn(c):
        return c.refuse(QUOTA_EXCEEDED)
    how = run_pump(down)
    c.count_moved()
    note(c.context.recorder, <void *>c, c.poller.now_us, E_DOWN, 0, down.moved - before)
    if c.usage.meter != NULL:
        after_turn(c)
    if how == PUMP_DONE or (how == PUMP_EOF and c.until_close and not was_reset(c)):
        if down.filter != NULL and (c.down_scan.surplus != NULL or c.down_scan.no_room
                                    or c.down_scan.chunks.padded):
            c.request.origin_persistent = False
        return c.complete()
    if how == PUMP_EOF:
        return c.cut_short(ORIGIN_RESET if was_reset(c) else RESPONSE_TRUNCATED)
    if how == PUMP_SOURCE_FAILED:
        return c.cut_short(ORIGIN_RESET)
    if how == PUMP_SINK_FAILED:
        return c.abort(CLIENT_RESET, True)
    if how == PUMP_REFUSED:
        # The bytes before the fault are valid, and still in the scratch buffer
        if c.down_scan.valid and not push(down, scratch(), c.down_scan.valid, NULL, 0):
            return c.abort(CLIENT_RESET if down.error else OVERLOADED, True)
        return c.cut_short(BAD_RESPONSE_FRAMING)
    if how == PUMP_NO_ROOM:
        return c.cut_short(OVERLOADED)
    if how == PUMP_AGAIN:
        c.poller.call_again(c)
    elif how == PUMP_STARVED:
        c.poller.call_when_room(c)
    if wait_for(c, READER if how == PUMP_STUCK else NOBODY) or down.moved != before:
        return c.extend()
    return 0


cdef int on_upgraded(Client c, char *data, size_t n, int used) except -1:
    """Raw bytes from here on, but only towards the protocol that was offered (R4)."""
    cdef Head offer
    cdef HeadLimits limits = HeadLimits(HEAD_BLOCK, HEAD_BLOCK, MAX_FIELDS)
    cdef char token[64]
    cdef size_t token_len = 0
    cdef int outcome
    cdef const char *value
    cdef size_t i
    if c.request.has_upgrade and head.count[F_UPGRADE] == 1:
        token_len = head.fields[head.first[F_UPGRADE] - 1].value_len
        value = data + head.fields[head.first[F_UPGRADE] - 1].value
    if token_len == 0 or token_len > sizeof(token):
        return c.refuse(UPGRADE_FAILED)
    for i in range(token_len):
        token[i] = value[i] | 0x20 if b"A" <= value[i] <= b"Z" else value[i]
    # The offer is the one in the head that went up, our Via included
    if parse_request(&offer, bytes_of(c.head), c.head.end, 0, &limits) <= 0 or (
            not has_token(&offer, bytes_of(c.head), F_UPGRADE, token, token_len)):
        return c.refuse(UPGRADE_FAILED)
    if is_holding(&c.relay.up):
        return c.refuse(BAD_RESPONSE)       # an answer to a head not yet wholly sent
    if is_cut_meanwhile(c):
        return c.refuse(DESTINATION_DENIED)
    outcome = admit_tunnel(c)
    if outcome != OK:
        return c.refuse(outcome)
    if not pass_head(c, data, False, False, True):
        return 0
    c.request.status = 101
    if n > <size_t>used and not push(&c.relay.down, data + used, n - used, NULL, 0):
        return c.abort(CLIENT_RESET if c.relay.down.error else OVERLOADED, True)
    return start_tunnel(c, NULL, 0)


cdef bint scan_through(Pump *pump, Scan **made, bint decode, bint trailers, bint lenient,
                       uint64_t most) noexcept nogil:
    """False: no memory."""
    cdef Scan *scan = <Scan *>malloc(sizeof(Scan))
    if scan == NULL:
        return False
    made[0] = scan                      # this request's first scan in this direction
    start_chunks(&scan.chunks, decode, trailers, lenient)
    scan.pump = pump
    scan.surplus = NULL
    scan.no_room = scan.too_large = False
    scan.valid = 0
    scan.most = most
    pump.left = -1
    pump.filter = scan_filter
    pump.context = scan
    return True


cdef int64_t scan_filter(void *context, char *data, size_t n, size_t *out_len,
                         const char **before, size_t *before_len) noexcept nogil:
    cdef Scan *scan = <Scan *>context
    cdef int64_t used = scan_chunks(&scan.chunks, data, n, out_len)
    if scan.chunks.before_len:
        before[0] = scan.chunks.before
        before_len[0] = scan.chunks.before_len
    if scan.most and scan.chunks.announced > scan.most:
        scan.too_large = True
        return -1
    if used < 0:
        # 0 if it begins in the middle of a trailer's name, whose first part would stay here
        scan.valid = 0 if scan.chunks.before_len else out_len[0]
    elif scan.chunks.done:
        scan.pump.left = 0
        if used < <int64_t>n:
            scan.surplus = keep_bytes(data + used, n - used, OF_REQUESTS)
            scan.no_room = scan.surplus == NULL
    return used
