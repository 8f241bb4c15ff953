# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Copies exchanges of a worker into its ring: those whose rule captures, and those whose rule
records. Of an answer that is recorded, each piece has its time.

    on_route      taps the request's body, if the rule captures in full
    on_response   HEADS: the response's head; taps its body, or both ways of a WebSocket
    (taps)        UP, DOWN: pieces of the bodies, up to a bound; FRAMES_UP, FRAMES_DOWN: of a
                  WebSocket, with their time
    on_end        END: everything that the log knows, and the request's head

A request's head is kept by its session to the end of the exchange, and is written once, as it
was rewritten for the origin: no credentials of the proxy are in it (R37), and nothing that a rule's
`headers` or filters add. A tunnel is END alone, and its
bytes are tapped only if it is a WebSocket. If the ring has no room, the record is dropped and
counted, or waits in memory if it is recorded; nothing else waits (R58). The identifier is the
log's, so the END of a tunnel that another worker finished finds its HEADS; that worker taps
nothing.

The state of a captured body is in a struct around its tap, made for the exchange: a client has
no field for it.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset
from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.pump cimport Tap
from cutthrough.net.sysio cimport clock_us
from cutthrough.net.transport cimport Agreed
from cutthrough.outcome cimport OK, RECORDING_FULL, RECORDING_TOO_LARGE
from cutthrough.policy.acl cimport CAPTURE_FULL, CAPTURE_NOTHING
from cutthrough.session.judge.secure cimport agreed_by
from cutthrough.session.model.client cimport (
    Client, Observer, is_between_requests, parent_of, peer_of, user_of, worker_of_id)
from cutthrough.session.model.inside cimport opening_of, prints_of
from cutthrough.session.model.recording_mode cimport is_recorded
from cutthrough.session.model.state cimport CLOSED, LINGER
from cutthrough.session.transfer.filtering cimport Shown, filtering_of, shown_of
from cutthrough.session.transfer.headers cimport put_begun_trace
from cutthrough.session.transfer.recording_room cimport Room
from cutthrough.tape.end_record cimport (
    IS_RECORDED, N_TEXTS, NOT_CAPTURED, T_ADDED, T_CLIENT, T_CLIENT_CIPHER, T_DETAIL, T_HEAD, T_HOST,
    T_PARENT, T_PEER, T_PEER_CIPHER, T_RULE, T_TRACE, T_USER, EndRecord, point)
from cutthrough.tape.ended cimport (
    Body, Exchange, agreed_of, fill_bodies, fill_in, fill_opening, fill_prints, fill_tls,
    unix_us)
from cutthrough.tape.record cimport (
    DOWN, END, FRAMES_DOWN, FRAMES_UP, HEADS, TIME_BYTES, TIMED_DOWN, UP, Kind)
from cutthrough.tape.ring cimport Producer, Ring, publish, reserve, reserve_or_hold
from cutthrough.wire.http1 cimport Head, has_token
from cutthrough.wire.names cimport F_UPGRADE
from cutthrough.wire.rewrite cimport build_regular_head, regular_bound
from cutthrough.wire.trace cimport TRACE_BYTES


cdef void take(Tap *tap, const char *data, size_t n) noexcept nogil:
    """Kinds behind DOWN have the time of each piece before it."""
    cdef Body *body = <Body *>tap
    cdef size_t time_n = TIME_BYTES if body.kind > DOWN else 0
    cdef int64_t at_us
    cdef char *at
    if n == 0:
        return
    if not body.is_behind_head:         # the first piece is the head, alone
        body.is_behind_head = True
        return
    body.seen += n
    if n > body.room:
        body.is_beyond = True
        n = body.room
    if n == 0:
        return
    at = (reserve_or_hold if body.may_not_be_lost else reserve)(body.ring, time_n + n)
    if at == NULL:
        body.ring.header.parts += 1
        body.was_cut = True
        body.room = 0                   # a later piece would not fit behind this gap
        return
    if time_n:
        at_us = unix_us()
        memcpy(at, &at_us, sizeof(at_us))
    memcpy(at + time_n, data, n)
    publish(body.ring, <Kind>body.kind, body.worker, body.request, time_n + n)
    body.room -= n


cdef bytes regular_head(const Head *head, const char *data):
    """A head that was read leniently: behind the ring lines end with CRLF, and names with
    their colon."""
    cdef bytes text = PyBytes_FromStringAndSize(NULL, regular_bound(head))
    return text[:build_regular_head(head, data, PyBytes_AS_STRING(text))]


cdef class Capture(Observer):
    """Observes the requests of a worker. `ring` is the worker's."""
    cdef Ring ring
    cdef int worker
    cdef uint64_t most_body             # bytes kept of each body
    cdef uint64_t most_recorded         # the same, of an exchange that is recorded
    cdef readonly Py_ssize_t tapped     # exchanges in hand with taps
    # Exchanges that began in this time are not captured, by the clock of their stamps
    cdef int64_t paused_us, resumed_us

    def __init__(self, Ring ring, int worker):
        self.ring = ring
        self.worker = worker

    def configure(self, uint64_t most_body, uint64_t most_recorded=0):
        self.most_body = most_body
        self.most_recorded = most_recorded

    def pause(self, bint paused):
        """Captures no exchange that begins from now on, or captures again. Of several pauses
        only the last one counts: what began in an earlier one and ends now is captured
        without its bodies."""
        cdef bint is_paused = self.paused_us and not self.resumed_us
        if paused and not is_paused:
            self.paused_us, self.resumed_us = clock_us(), 0
        elif is_paused and not paused:
            self.resumed_us = clock_us()

    cdef int mode_of(self, Client client) noexcept:
        """The Capturing of the rule that decided."""
        cdef int64_t begun_us = client.stamps.start_us
        if client.request.rule < 0 or client.snapshot is None or client.snapshot.acl is None or (
                self.paused_us and begun_us >= self.paused_us and (
                    not self.resumed_us or begun_us < self.resumed_us)):
            return CAPTURE_NOTHING
        return client.snapshot.acl.rows[client.request.rule].capture

    cdef int on_route(self, Client client) except -1:
        cdef Exchange *exchange
        cdef bint is_recorded_now = is_recorded(client)
        if self.mode_of(client) != CAPTURE_FULL and not is_recorded_now or (
                client.request.is_tunnel or client.request.has_upgrade):
            return 0
        exchange = self.tapping(client)
        if exchange == NULL:
            return 0                    # captured without its bodies
        self.begin(&exchange.up, client, UP)
        self.begin(&exchange.down, client, TIMED_DOWN if is_recorded_now else DOWN)
        if is_recorded_now:
            self.record(exchange)
        return 0

    cdef Exchange *tapping(self, Client client) noexcept:
        """Sets the tap of the octets sent up. NULL: no memory."""
        cdef Exchange *exchange = <Exchange *>client.relay.up.tap   # not NULL: it is retried
        if exchange == NULL:
            exchange = <Exchange *>calloc(1, sizeof(Exchange))
            if exchange == NULL:
                return NULL
            self.tapped += 1
        else:
            memset(exchange, 0, sizeof(Exchange))
        client.relay.up.tap = &exchange.up.tap
        return exchange

    cdef void begin(self, Body *body, Client client, Kind kind) noexcept:
        body.tap.take = take
        body.ring = &self.ring.producer
        body.request = client.request_id
        body.worker = <uint16_t>worker_of_id(client, self.worker)
        body.kind = <uint16_t>kind
        body.room = self.most_body

    cdef void record(self, Exchange *exchange) noexcept:
        exchange.is_recorded = True
        exchange.up.room = exchange.down.room = self.most_recorded
        exchange.up.may_not_be_lost = exchange.down.may_not_be_lost = True

    cdef int on_response(self, Client client, const Head *head, const char *data) except -1:
        cdef Producer *ring = &self.ring.producer
        cdef Exchange *exchange
        cdef uint32_t n_up = 0, n_down
        cdef Shown shown = shown_of(client)
        cdef size_t n
        cdef char *at
        cdef bytes regular = None
        cdef bint is_recorded_now = head != NULL and head.status == 101 and is_recorded(client)
        if head == NULL or (self.mode_of(client) == CAPTURE_NOTHING and not is_recorded_now and (
                not has_recording_tap(client))):
            return 0
        if head.status == 101 and (is_recorded_now or self.mode_of(client) == CAPTURE_FULL) and (
                has_token(head, data, F_UPGRADE, b"websocket", 9)):
            exchange = self.tapping(client)
            if exchange != NULL:
                self.begin(&exchange.up, client, FRAMES_UP)
                self.begin(&exchange.down, client, FRAMES_DOWN)
                exchange.up.is_behind_head = True       # it went up already
                if is_recorded_now:
                    self.record(exchange)
        if client.relay.up.tap != NULL:
            client.relay.down.tap = &(<Exchange *>client.relay.up.tap).down.tap
        if head.lenient:
            regular = regular_head(head, data)
            data, n_down = regular, <uint32_t>len(regular)
        else:
            data, n_down = data + head.start, head.length - head.start
        if client.request.has_upgrade and shown.data != NULL:
            n_up = <uint32_t>shown.n            # it is dropped when the tunnel begins
        n = sizeof(n_up) + n_up + n_down
        at = reserve_or_hold(ring, n) if has_recording_tap(client) else reserve(ring, n)
        if at == NULL:
            ring.header.parts += 1
            return 0
        memcpy(at, &n_up, sizeof(n_up))
        at += sizeof(n_up)
        if n_up:
            memcpy(at, shown.data, n_up)
        memcpy(at + n_up, data, n_down)
        publish(ring, HEADS, <uint16_t>worker_of_id(client, self.worker), client.request_id, n)
        return 0

    cdef int on_end(self, Client client, int outcome) except -1:
        cdef Exchange *exchange = <Exchange *>client.relay.up.tap
        cdef bint is_captured = self.mode_of(client) != CAPTURE_NOTHING
        cdef bint is_kept = is_captured or has_recording_tap(client)
        cdef EndRecord end
        memset(&end, 0, sizeof(end))
        if is_kept:
            end.outcome = <uint8_t>outcome
            fill_in(&end, client, client.context.ended_us)
            fill_bodies(&end, client, exchange)
            if has_recording_tap(client):
                end.flags |= IS_RECORDED if is_captured else IS_RECORDED | NOT_CAPTURED
        self.stop_tapping(client)
        if is_kept:
            self.write(&end, client, False)
        return 0

    def so_far(self, Client client, int64_t least_us=0):
        """The END that the exchange in hand would have now, and its identifier; None: there
        is none, it is not captured, or it has begun less than `least_us` ago."""
        cdef EndRecord end
        if client.state == CLOSED or client.state == LINGER or is_between_requests(client) or (
                not client.stamps.start_us or self.mode_of(client) == CAPTURE_NOTHING or (
                clock_us() - client.stamps.start_us < least_us)):
            return None
        memset(&end, 0, sizeof(end))
        end.outcome = OK
        fill_in(&end, client, clock_us())
        fill_bodies(&end, client, <Exchange *>client.relay.up.tap)
        return (f"{worker_of_id(client, self.worker)}-{client.request_id}",
                self.write(&end, client, True))

    def on_handover(self, Client client):
        self.stop_tapping(client)

    cdef void stop_tapping(self, Client client) noexcept:
        if client.relay.up.tap == NULL:
            return
        free(client.relay.up.tap)
        client.relay.up.tap = client.relay.down.tap = NULL
        self.tapped -= 1

    cdef bytes write(self, EndRecord *end, Client client, bint is_open):
        """Into the ring, and returns None; if the exchange goes on, returns the END alone."""
        cdef bytes record = None
        cdef Producer *ring = &self.ring.producer
        cdef const char *texts[N_TEXTS]
        cdef char[ADDRESS_TEXT] client_text
        cdef char[ADDRESS_TEXT] peer_text
        cdef char[TRACE_BYTES] trace
        cdef size_t n = sizeof(EndRecord)
        cdef Agreed peer
        cdef Shown shown = shown_of(client)
        cdef char *at
        cdef int i
        cdef bytes rule, parent, detail
        point(end, texts, T_HOST, client.key)
        end.lengths[T_HOST] -= min(end.lengths[T_HOST], <uint32_t>2)    # the port
        if shown.data != NULL and shown.path_len and (
                not client.request.is_tunnel):      # of an upgrade on_response has given it
            texts[T_HEAD] = shown.data
            end.lengths[T_HEAD] = <uint32_t>shown.n
        point(end, texts, T_USER, user_of(client))
        if client.extras.filtering is not None:
            point(end, texts, T_ADDED, filtering_of(client).added)
        if not end.flags & NOT_CAPTURED:        # of a recording no more is kept
            rule, parent = client.snapshot.acl.label(client.request.rule), parent_of(client)
            point(end, texts, T_RULE, rule)
            point(end, texts, T_PARENT, parent)
            detail = None if client.extras.decision is None else (
                client.extras.decision.reason.encode(errors="replace"))
            point(end, texts, T_DETAIL, detail)
            texts[T_TRACE] = trace
            end.lengths[T_TRACE] = <uint32_t>put_begun_trace(client, trace)
            texts[T_CLIENT] = client_text
            end.lengths[T_CLIENT] = print_address(&client.address, client_text)
            texts[T_PEER] = peer_text
            if peer_of(client) != NULL:
                end.lengths[T_PEER] = print_address(peer_of(client), peer_text)
                end.peer_port = peer_of(client).port
            if opening_of(client) != NULL:
                fill_opening(end, texts, opening_of(client))
            if prints_of(client) is not None:
                fill_prints(end, texts, prints_of(client))
            fill_tls(agreed_by(client), &end.client_tls, &texts[T_CLIENT_CIPHER],
                     &end.lengths[T_CLIENT_CIPHER])
            if client.origin is not None:
                fill_tls(agreed_of(&client.origin.sock, &peer), &end.peer_tls,
                         &texts[T_PEER_CIPHER], &end.lengths[T_PEER_CIPHER])
        for i in range(<int>N_TEXTS):
            n += end.lengths[i]
        if is_open:
            record = PyBytes_FromStringAndSize(NULL, n)
            at = PyBytes_AS_STRING(record)
        else:
            at = reserve_or_hold(ring, n) if end.flags & IS_RECORDED else reserve(ring, n)
        if at == NULL:
            ring.header.dropped += 1
            return None
        memcpy(at, end, sizeof(EndRecord))
        at += sizeof(EndRecord)
        for i in range(<int>N_TEXTS):
            if end.lengths[i]:
                memcpy(at, texts[i], end.lengths[i])
                at += end.lengths[i]
        if is_open:
            return record
        ring.header.exchanges += 1
        publish(ring, END, <uint16_t>worker_of_id(client, self.worker), client.request_id, n)
        if ring.first != NULL and client.context.room is not None:
            (<Room>client.context.room).watch()
        return None


cdef int loss_of(Client client) noexcept:
    cdef const Exchange *exchange = <const Exchange *>client.relay.up.tap
    if exchange == NULL or not exchange.is_recorded:
        return OK
    if exchange.up.was_cut or exchange.down.was_cut:
        return RECORDING_FULL
    return RECORDING_TOO_LARGE if exchange.up.is_beyond or exchange.down.is_beyond else OK


cdef inline bint has_recording_tap(Client client) noexcept:
    """Does the answer come from an origin, and is it recorded?"""
    return client.relay.up.tap != NULL and (<Exchange *>client.relay.up.tap).is_recorded
