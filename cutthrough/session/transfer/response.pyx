# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The response of one exchange: its head is read, rewritten and passed on, then its body.

The head says how the response ends (RFC 9112 section 6.3): by length, by the last chunk, or
when the origin closes. The origin's connection is used again only if the response ended as
its head announced; any doubt ends it (R18).
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy
from cutthrough.net.buffers cimport (
    HEAD_ROOM, COPY_BLOCK, COPY_BYTES, OF_REQUESTS, bytes_of, give_block,
    keep_bytes, scratch)
from cutthrough.net.linux cimport EAGAIN, EPIPE
from cutthrough.net.multiplex cimport PEER_SILENT, STREAM_BROKE_RULES, is_stream
from cutthrough.net.pump cimport (
    PUMP_AGAIN, PUMP_DONE, PUMP_EOF, PUMP_NO_ROOM, PUMP_REFUSED, PUMP_SINK_FAILED,
    PUMP_SOURCE_FAILED, PUMP_STARVED, PUMP_STUCK, Pump, Pumped)
from cutthrough.net.relay cimport feed, is_holding, push, run_pump, start_pump, stop_pump
from cutthrough.net.sysio cimport CAN_READ, keep_for_fin, try_recv
from cutthrough.outcome cimport (
    BAD_RESPONSE, BAD_RESPONSE_FRAMING, DESTINATION_DENIED, FILTER_FAILED, OK, ORIGIN_CLOSED,
    ORIGIN_RESET, OVERLOADED, PARENT_AUTH, PARENT_CLOSED, RECORDING_TOO_LARGE, RESPONSE_TRUNCATED,
    UPGRADE_FAILED)
from cutthrough.policy.hop cimport HOP_FORWARD, HOP_NAMED_ORIGIN
from cutthrough.session.judge.under_way cimport is_cut_meanwhile
from cutthrough.session.model.awaited cimport NOBODY, READER
from cutthrough.session.model.broken cimport outcome_of_client
from cutthrough.session.model.charge cimport (
    admit_tunnel, after_turn, before_turn, may_pass, outcome_of_meter)
from cutthrough.session.model.chunked_body cimport Scan, drop_scan, scan_of, scan_through
from cutthrough.session.model.client cimport Client, Observer, extras_of, is_call
from cutthrough.session.model.context cimport writing_of
from cutthrough.session.model.flight_recorder cimport E_ANSWER, E_DOWN, E_ORIGIN_ENDED, note
from cutthrough.session.model.framed_body cimport (
    FRAMED_FIELD_BYTES, MOST_FRAME, announce_frames, end_frames, frame_through, is_framing,
    put_frame)
from cutthrough.session.model.origin_streams cimport is_unread, may_ask_again, take_back
from cutthrough.session.model.phase cimport PHASE_TO_ORIGIN
from cutthrough.session.model.recording_mode cimport MUST_FIT
from cutthrough.session.model.request cimport MOST_TRIES, Request
from cutthrough.session.model.stamps cimport end_phase
from cutthrough.session.model.state cimport RELAY, REQUEST, RESPONSE
from cutthrough.session.transfer.filtering cimport filtering_of, is_held
from cutthrough.session.transfer.headers cimport change_response
from cutthrough.session.transfer.messages cimport give_messages, takes_messages
from cutthrough.session.transfer.min_rate cimport wait_for
from cutthrough.session.transfer.origin_alerts cimport outcome_of_origin, pass_reset
from cutthrough.session.transfer.recording_room cimport bound_response, outcome_of_loss
from cutthrough.session.transfer.responder cimport taps_origin, up_sluice
from cutthrough.session.transfer.sluice cimport Sluice, run_sluice
from cutthrough.session.transfer.to_filters cimport takes_response
from cutthrough.session.transfer.tunnel cimport start_tunnel
from cutthrough.session.ways.origins cimport blame_server, goes_elsewhere, praise_server
from cutthrough.wire.framing cimport (
    BODY_CHUNKED, BODY_LENGTH, BODY_UNTIL_CLOSE, Framing, read_response_framing)
from cutthrough.wire.http1 cimport (
    HTTP_10, HTTP_11, MAX_FIELDS, Head, HeadLimits, parse_request, parse_response)
from cutthrough.wire.names cimport F_DATE
from cutthrough.wire.rewrite cimport (
    ADD_CLOSE, BY_HTTP2, DROP_LENGTH, KEEP_CHUNKED, KEEP_UPGRADE, REWRITE_ROOM, Writing,
    build_response_head, is_offered)

cdef enum:
    MOST_INTERIM = 32           # 1xx heads before the final one; no 1xx is ever needed twice
    # Bytes read, with the part of a head already here: both, rewritten, may have to be kept
    MOST_READ = COPY_BLOCK - MAX_FIELDS - REWRITE_ROOM

cdef Head head                  # of the response being read; used within one call only


cdef bint was_reset(Client c) noexcept:
    """The kernel reports a reset once: if a send met it, a read sees an end. Only behind a
    FIN the send gets EPIPE, and the bytes that had come until then are whole."""
    return c.relay.up.error != 0 and c.relay.up.error != EPIPE


cdef int read_response(Client c) except -1:
    """Reads until the head is whole or the socket is dry: behind half a head there may
    be an end of stream that no further event reports. Bounded by the head's limits."""
    while (c.state == REQUEST or c.state == RESPONSE) and not is_held(c) and (
            c.origin is not None and c.origin.sock.ready & CAN_READ):
        read_some(c)
    return 0


cdef int read_some(Client c) except -1:
    cdef char *data = scratch()
    cdef size_t held = 0
    cdef ssize_t n
    if c.extras.partial != NULL:
        held = c.extras.partial.end
        memcpy(data, bytes_of(c.extras.partial), held)
    n = try_recv(&c.origin.sock, data + held, min(<size_t>COPY_BYTES, MOST_READ - held))
    if n == -EAGAIN:
        return 0
    if held:
        give_block(&c.extras.partial)
    if up_sluice(c) is not None and up_sluice(c).awaits_head:
        return leave_origin(c)
    if n <= 0:
        note(c.context.recorder, <void *>c, c.poller.now_us, E_ORIGIN_ENDED, 0, -n)
        return on_no_response(c, <int>-n if n or not was_reset(c) else c.relay.up.error, held)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_ANSWER, 0, n)
    if c.stamps.first_byte_us == 0:
        c.stamps.first_byte_us = end_phase(&c.stamps)
    return on_response(c, data, held + n, held)


cdef int leave_origin(Client c) except -1:
    """The filters have the request's body, and an origin that got nothing of it ends, or speaks: it
    did not wait so long. Another one is dialled when the body is there."""
    note(c.context.recorder, <void *>c, c.poller.now_us, E_ORIGIN_ENDED, 0, 0)
    c.close_origin(False)
    stop_pump(&c.relay.up)
    c.relay.up.sink = NULL
    c.relay.down.source = NULL
    end_phase(&c.stamps)                    # the time of its body is no look-up's
    return 0


cdef int on_no_response(Client c, int error, size_t held) except -1:
    """The origin has ended; `error` 0: without an error. A pooled connection may die the moment it is
    used: the request is retried on a fresh one if it cannot have acted twice (R19). An origin of
    HTTP/2 that ends its connection after some requests refuses what came behind them, on a connection
    that many have waited for too. Another connection to an origin that chooses HTTP/2 and says nothing
    would be as silent; and an answer that breaks the rules is an answer, as by HTTP/1.1."""
    cdef Request *r = &c.request
    cdef unsigned int most = MOST_TRIES if is_unread(c) else 1
    cdef bint again = False
    cdef int outcome
    if r.tries < most and held == 0 and r.interim == 0 and error != PEER_SILENT and (
            error != STREAM_BROKE_RULES):
        if c.origin.reused and r.can_retry or may_ask_again(c) or goes_elsewhere(c):
            c.close_origin(False)
            stop_pump(&c.relay.up)
            c.count_moved()
            c.counted_up = 0
            drop_scan(&c.relay.up)
            start_pump(&c.relay.up, &c.sock, NULL, 0)
            again = True
        elif take_back(c):
            c.close_origin(False)
            again = r.resumes = True
        if again:
            r.tries += 1
            c.context.counters.retried += 1
            end_phase(&c.stamps)            # the dead connection's time is no look-up's
            r.dials = True
            return c.resume(PHASE_TO_ORIGIN)
    if r.hop.kind == HOP_NAMED_ORIGIN and not c.origin.reused:
        blame_server(c, PARENT_CLOSED)
    if r.hop.kind == HOP_FORWARD:
        return c.refuse(PARENT_CLOSED)
    if error == 0:
        return c.refuse(ORIGIN_CLOSED)
    outcome = outcome_of_origin(c, error)
    if outcome == ORIGIN_RESET and is_call(c) and pass_reset(c):
        return c.abort(outcome, True)
    return c.refuse(outcome)


cdef int on_response(Client c, char *data, size_t n, size_t seen) except -1:
    cdef Request *r = &c.request
    cdef Framing framing
    cdef int used
    while True:
        used = parse_response(&head, data, n, seen, &c.context.options.response_limits)
        if used < 0:
            return c.refuse(-used)
        if used == 0:
            extras_of(c).partial = keep_bytes(data, n, OF_REQUESTS)
            return 0 if c.extras.partial != NULL else c.refuse(OVERLOADED)
        if head.status < 200 and c.extras.filtering is not None:
            filtering_of(c).mask_head(&head, data)
        if head.status == 101:
            return on_upgraded(c, data, n, used)
        if head.status >= 200:
            return on_final_head(c, data, n, used)
        if head.status == 100 and r.awaits_100:
            r.awaits_100 = False
            if c.state == REQUEST:
                c.extend()                  # the client's turn: its whole deadline from now
        read_response_framing(&head, data, r.method, &framing)
        if framing.contradicts:
            r.marks_origin = True           # content may stand in place of the next head
        r.interim += 1
        if r.interim > MOST_INTERIM:
            return c.refuse(BAD_RESPONSE)
        if r.minor == HTTP_11 and not pass_head(c, data, 0):
            return 0
        data += used
        n -= used
        seen = 0
        if n == 0:
            return 0


cdef bint pass_head(Client c, const char *data, int options) except -1:
    """Pushes the head alone. False: the exchange has been ended."""
    cdef Writing writing = writing_of(c.context, options | version_of(c))
    cdef int n = build_response_head(&writing, &head, data, NULL)
    if n < 0:
        c.refuse(-n)
        return False
    if not push(&c.relay.down, writing.out, n, NULL, 0):
        c.abort(outcome_of_client(c.relay.down.error), True)
        return False
    return True


cdef inline int version_of(Client c) noexcept:
    return BY_HTTP2 if is_stream(&c.origin.sock) else 0


cdef int replay_response(Client c, char *data, size_t n) except -1:
    cdef int used = parse_response(&head, data, n, 0, &c.context.options.response_limits)
    if used <= 0:
        return c.refuse(-used if used else FILTER_FAILED)
    return on_final_head(c, data, n, used)


cdef int on_final_head(Client c, char *data, size_t n, int used) except -1:
    cdef Request *r = &c.request
    cdef Pump *down = &c.relay.down
    cdef Writing writing
    cdef Framing framing
    cdef int64_t fed
    cdef uint64_t moved
    cdef bint frames
    cdef int outcome
    cdef int out_len = read_response_framing(&head, data, r.method, &framing)
    if out_len < 0:
        return c.refuse(-out_len)
    if head.status == 407 and r.hop.kind == HOP_FORWARD:
        return c.refuse(PARENT_AUTH)    # to the client it would look like ours
    if r.hop.kind == HOP_NAMED_ORIGIN:
        praise_server(c)
    if c.extras.filtering is not None and takes_response(c, &head, &framing, data, n, used):
        return 0
    # In chunks of our own, unless the connection ends anyway
    frames = framing.kind == BODY_UNTIL_CLOSE and r.minor == HTTP_11 and r.persistent and not (
        c.up_open or c.context.draining or is_stream(&c.sock))
    c.until_close = framing.kind == BODY_UNTIL_CLOSE and not frames
    out_len = write_head_down(c, data, &framing, &writing)
    if out_len < 0:
        return c.refuse(-out_len)
    outcome = expect_body_down(c, &framing, frames)
    if outcome != OK:
        return c.refuse(outcome)
    if c.context.observer is not None and not taps_origin(c):
        (<Observer>c.context.observer).on_response(c, &head, data)
    if c.usage.meter != NULL:
        n = used + may_pass(c, out_len, n - used)
    moved = down.moved
    if frames:
        fed = feed_framed(down, &writing, out_len, data + used, n - used)
    else:
        fed = feed(down, writing.out, out_len, data + used, n - used)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_DOWN, 0, down.moved - moved)
    if fed == -2:
        return c.refuse(outcome_of_refused(c))
    r.status = head.status
    if fed < 0:
        return c.abort(outcome_of_client(down.error), True)
    # Bytes behind the end belong to no request of ours: never pool that connection (R18).
    # Nor if the answer did not wait for the whole request, or for the 100 that the body was
    # to wait for: an origin that takes the rest for its next request answers twice, and
    # the second answer would go to another client.
    r.origin_persistent = (framing.persistent and not r.marks_origin and not r.awaits_100
                           and fed == <int64_t>(n - used) and not c.up_open
                           and c.relay.up.sink != NULL and not is_holding(&c.relay.up))
    c._set_state(RELAY)
    return pump_down(c)


cdef inline int write_head_down(Client c, const char *data, const Framing *framing,
                                Writing *writing) except? -1:
    """Decides if the connection ends behind this response, and writes the head for the client.
    Returns its length, or minus an Outcome."""
    cdef Request *r = &c.request
    cdef const char *date = NULL
    cdef bint says_close
    cdef int out_len
    r.closing = (not r.persistent or c.up_open or c.until_close or c.context.draining
                 or r.minor == HTTP_10)
    # 417 to an expectation: curl retries without it, unless there is a `close`. The connection
    # ends all the same, by a FIN: the next bytes may be a body or a request (R6). It must come
    # with the head, or else curl sends its second request into a connection that ends.
    says_close = r.closing and not (head.status == 417 and r.awaits_100 and r.persistent
                                    and not c.until_close and not c.context.draining)
    if r.closing and not says_close:
        keep_for_fin(&c.sock)
    if not head.count[F_DATE]:
        date = c.context.date()
    writing[0] = writing_of(
        c.context, version_of(c) | says_close * ADD_CLOSE | framing.contradicts * DROP_LENGTH
        | (framing.kind == BODY_CHUNKED and r.minor == HTTP_11) * KEEP_CHUNKED)
    out_len = build_response_head(writing, &head, data, date)
    return change_response(c, writing, out_len) if out_len > 0 else out_len


cdef inline int expect_body_down(Client c, const Framing *framing, bint frames) except -1:
    """Prepares the pump for the body. Returns an Outcome."""
    cdef Pump *down = &c.relay.down
    down.left = framing.length if framing.kind == BODY_LENGTH else (
        -1 if c.until_close else 0)
    if framing.kind == BODY_CHUNKED and not scan_through(
            down, c.request.minor == HTTP_10, framing.trailers, True, 0) or (
            frames and not frame_through(down)):
        return OVERLOADED
    return bound_response(c) if c.request.room == MUST_FIT else OK


cdef int64_t feed_framed(Pump *down, const Writing *writing, size_t head_len, char *data,
                         size_t n) noexcept nogil:
    """As `feed`, with the first chunk's line behind the head, but that a tap gets heads alone."""
    cdef Scan *scan = scan_of(down)
    if scan.most and n > scan.most:         # before anything is sent
        scan.too_large = True
        return -2
    if head_len + FRAMED_FIELD_BYTES + MOST_FRAME > writing.cap:
        return -1                       # a rule's fields take all the room
    head_len = announce_frames(writing.out, head_len)
    if n == 0 or down.tap != NULL:
        if not push(down, writing.out, head_len, NULL, 0):
            return -1
        head_len = 0
    if n == 0:
        return 0
    head_len += put_frame(down, writing.out + head_len, n)
    return <int64_t>n if push(down, writing.out, head_len, data, n) else -1


cdef int outcome_of_refused(Client c) noexcept:
    """Chunks that break the protocol, or are more than can be recorded."""
    return RECORDING_TOO_LARGE if scan_of(&c.relay.down).too_large else BAD_RESPONSE_FRAMING


cdef int pump_down(Client c) except -1:
    cdef Pump *down = &c.relay.down
    cdef uint64_t before = down.moved
    cdef const Scan *scan
    cdef size_t n
    cdef Pumped how
    cdef int outcome
    if c.extras.down is not None:
        return run_sluice(<Sluice>c.extras.down)
    if c.usage.meter != NULL and not before_turn(c):
        return c.refuse(outcome_of_meter(c))
    how = run_pump(down)
    c.count_moved()
    note(c.context.recorder, <void *>c, c.poller.now_us, E_DOWN, 0, down.moved - before)
    if c.usage.meter != NULL:
        after_turn(c)
    outcome = outcome_of_loss(c)
    if outcome != OK:
        return c.cut_short(outcome)
    if how == PUMP_EOF and is_framing(down) and not was_reset(c):
        if not end_frames(down):
            return c.abort(outcome_of_client(down.error), True)
        how = run_pump(down)
        c.count_moved()
        if how == PUMP_EOF:
            return c.complete()
    if how == PUMP_DONE or (how == PUMP_EOF and c.until_close and not was_reset(c)):
        scan = scan_of(down)
        if scan != NULL and (scan.surplus != NULL or scan.no_room or scan.chunks.padded):
            c.request.origin_persistent = False
        return c.complete()
    if how == PUMP_EOF:
        return c.cut_short(outcome_of_origin(c, c.relay.up.error) if was_reset(c) else (
            RESPONSE_TRUNCATED))
    if how == PUMP_SOURCE_FAILED:
        return c.cut_short(outcome_of_origin(c, down.error))
    if how == PUMP_SINK_FAILED:
        return c.abort(outcome_of_client(down.error), True)
    if how == PUMP_REFUSED:
        # The bytes before the fault are valid, and still in the scratch buffer
        n = scan_of(down).valid
        if n and not push(down, scratch(), n, NULL, 0):
            return c.abort(outcome_of_client(down.error), True)
        return c.cut_short(outcome_of_refused(c))
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
    cdef HeadLimits limits = HeadLimits(HEAD_ROOM, HEAD_ROOM, MAX_FIELDS)
    cdef int outcome
    # The offer is the one in the head that went up, our Via included
    if not c.request.has_upgrade or parse_request(
            &offer, bytes_of(c.head), c.head.end, 0, &limits) <= 0 or (
            not is_offered(&head, data, &offer, bytes_of(c.head))):
        return c.refuse(UPGRADE_FAILED)
    if c.request.hop.kind == HOP_NAMED_ORIGIN:
        praise_server(c)
    if is_holding(&c.relay.up):
        return c.refuse(BAD_RESPONSE)       # an answer to a head not yet wholly sent
    if is_cut_meanwhile(c):
        return c.refuse(DESTINATION_DENIED)
    outcome = admit_tunnel(c)
    if outcome != OK:
        return c.refuse(outcome)
    if c.context.observer is not None:
        (<Observer>c.context.observer).on_response(c, &head, data)
    if not pass_head(c, data, KEEP_UPGRADE):
        return 0
    c.request.status = 101
    if takes_messages(c, &head, data):
        give_messages(c, False, data + used, n - used)
    elif n > <size_t>used and not push(&c.relay.down, data + used, n - used, NULL, 0):
        return c.abort(outcome_of_client(c.relay.down.error), True)
    return start_tunnel(c, NULL, 0)
