# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A client's connection: the fields and endings that tunnels and plain requests share.

The state and its deadline, the bytes not taken yet, and the endings. The work on a request is in
other files: `phases` has its order, `judge` decides, `tunnel` and `forward` carry out.

    accept -> HEAD -> (AUTH, DECIDE, HELD) -> (RESOLVE -> DIAL) -> TUNNEL -> CLOSED
               ^                            -> REQUEST -> RESPONSE -> RELAY -> IDLE -+
               +---------------------------------------------------------------------+
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy, memset
from cutthrough.net cimport linux
from cutthrough.net.buffers cimport (
    COPY_BLOCK, OF_REQUESTS, OF_STRANGERS, bytes_of, give_block, make_room, scratch)
from cutthrough.net.connector cimport cancel
from cutthrough.net.deferred cimport settle
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.pipes cimport pipes_refused
from cutthrough.net.relay cimport is_holding, stop_pump
from cutthrough.net.sysio cimport (
    BROKEN, CAN_READ, clock_us, half_close, has_unread, set_abortive, try_recv, try_send)
from cutthrough.net.transport cimport KERNEL
from cutthrough.outcome cimport (
    BAD_REQUEST, BAD_TARGET, KEEPALIVE_TIMEOUT, OK, label_of, status_of)
from cutthrough.outcome import TABLE as TABLE_OF_ENDINGS
from cutthrough.policy.acl cimport NOT_ASKED
from cutthrough.session.model.awaited cimport NOBODY
from cutthrough.session.model.chunked_body cimport drop_scan
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.counters cimport Counters, count_bytes, count_end, count_reply
from cutthrough.session.model.extras cimport NOTHING, end_responders, forget_responders, has_responder
from cutthrough.session.model.flight_recorder cimport (
    E_DOWN_FAILED, E_ENDED, E_STATE, E_UP_FAILED, FlightRecorder, note)
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport end_last_phase
from cutthrough.session.model.state cimport (
    AUTH, CLOSED, DATAGRAMS, DECIDE, HALF_CLOSED, HEAD, IDLE, LINGER, REQUEST, RESOLVE, RESPONSE,
    STREAMS, may_follow)
from cutthrough.session.model.states import TABLE
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.names cimport M_CONNECT, M_HEAD, M_TUNNEL
from cutthrough.wire.reply cimport (
    NO_HINT, reply_to_call, reply_with_hint, reply_with_id, reply_with_retry)
from cutthrough.wire.socks cimport MOST_SOCKS_REPLY, build_socks_refusal

cdef enum:
    # Bytes discarded from a client that was answered before it had finished (R6); nginx's
    # lingering_close has no bound but its time
    MOST_DISCARDED = 1048576

cdef char[MOST_SOCKS_REPLY] socks_refusal


cdef class Journal:

    cdef int write(self, Client client, int outcome) except -1:
        return 0

    cdef int note_head(self, Client client, const Head *head, const char *data) except -1:
        return 0


cdef class Observer:

    cdef int on_request(self, Client client, const Head *head, const char *data) except -1:
        return 0

    cdef int on_route(self, Client client) except -1:
        return 0

    cdef int on_response(self, Client client, const Head *head, const char *data) except -1:
        return 0

    def on_connect(self, Client client):
        """A connection was accepted."""

    def on_stream(self, Client client, Client carrier):
        """A stream of HTTP/2 has begun, by the carrier's connection."""

    def on_client_tls(self, Client client):
        """The client's handshake is done."""

    def on_origin_tls(self, Client client):
        """The handshake with the origin is done."""

    def on_parent_lost(self, Client client, int outcome):
        """A parent, or a server of a named origin, has failed the request; another may follow."""

    def on_disconnect(self, Client client):
        """The connection is about to be closed. It may be a stream, or a probe."""

    def on_handover(self, Client client):
        """The tunnel goes on and ends in another worker: what its taps need can be freed."""

    cdef int on_end(self, Client client, int outcome) except -1:
        return 0


@cython.no_gc
cdef class Client:

    def __cinit__(self):
        self.request.rule = NOT_ASKED       # objects are zeroed, and 0 is the first rule
        self.extras = NOTHING

    cdef int _set_state(self, int state) except -1:
        """Writes every state but CLOSED, and arms the state's deadline (R30)."""
        if not may_follow(self.state, state):
            raise AssertionError(
                f"{TABLE[self.state].name} cannot become {TABLE[state].name}")
        self.context.counters.states[self.state] -= 1
        self.context.counters.states[state] += 1
        self.state = <unsigned char>state
        self.since_ms = self.poller.time_ms()
        self.awaited = NOBODY
        if state == LINGER or (state == IDLE and self.usage.place == 0):
            rest(self)
        note(self.context.recorder, <void *>self, self.poller.now_us, E_STATE, state, 0)
        return self.extend()

    cdef int extend(self) except -1:
        cdef int whose = RESPONSE if self.waits_for_100() else self.state
        cdef int64_t timeout_ms = self.context.options.timeout_ms[whose]
        cdef int64_t deadline_ms, last_ms
        # A stranger: at most head_timeout
        if (self.state == IDLE or self.state == STREAMS) and not self.known:
            timeout_ms = min(timeout_ms, self.context.options.timeout_ms[HEAD])
        deadline_ms = self.poller.time_ms() + timeout_ms
        if self.context.options.lifetime_ms and REQUEST <= self.state <= HALF_CLOSED:
            # An absolute time: bytes that move a deadline must not move this one
            last_ms = (self.stamps.start_us + 999) // 1000 + self.context.options.lifetime_ms
            deadline_ms = min(deadline_ms, last_ms)
        self.silent_ms = deadline_ms
        if self.awaited != NOBODY:
            deadline_ms = min(deadline_ms, self.watch.rate.until_ms)
        return self.poller.arm(self, deadline_ms)

    cdef bint waits_for_100(self) noexcept:
        """The client sends no body before the origin has requested or refused it."""
        return (self.state == REQUEST and self.request.awaits_100
                and self.relay.up.moved <= self.head.end)

    cdef bint is_too_old(self) noexcept:
        return (self.context.options.lifetime_ms and REQUEST <= self.state <= HALF_CLOSED
                and clock_us() - self.stamps.start_us >= self.context.options.lifetime_ms * 1000)

    cdef int begin(self) except -1:
        self.stamps.start_us = self.poller.now_us
        self.context.counters.next_id += 1
        self.request_id = self.context.counters.next_id
        return 0

    cdef bint keep_input(self, const char *data, size_t n) noexcept nogil:
        if n == 0:
            return True
        if not make_room(&self.input, n, OF_REQUESTS if self.known else OF_STRANGERS):
            return False
        memcpy(bytes_of(self.input) + self.input.end, data, n)
        self.input.end += <uint32_t>n
        return True

    cdef int refuse(self, int outcome) except -1:
        cdef Request *r = &self.request
        cdef size_t n
        cdef bint close = is_last(self)
        cdef const char *text
        cdef bytes own
        if r.status != 0 or carries_tunnel(self):       # a transparent one has no status
            return self.cut_short(outcome)
        if status_of(outcome) == 0:
            return self.abort(outcome, False)
        text = refusal_of(self, outcome, close, &n)
        if text == NULL:
            return self.abort(outcome, False)
        if r.method <= M_CONNECT and refusals_of(self) is not None:
            own = refusals_of(self).reply(
                label_of(outcome), text[:n], r.rule, r.method == M_HEAD,
                f"{worker_of_id(self, self.context.worker)}-{self.request_id}")
            if own is not None:
                text, n = own, len(own)
        return self.reply(outcome, status_of(outcome), text, n, close)

    cdef int reply(self, int outcome, int status, const char *text, size_t n,
                   bint close) except -1:
        self.request.status = <unsigned short>status
        if status >= 400:
            text = reply_with_id(text, &n, worker_of_id(self, self.context.worker), self.request_id)
            if is_call(self):
                text = reply_to_call(label_of(outcome), text, &n)
        if is_holding(&self.relay.down) or try_send(&self.sock, text, n) != <ssize_t>n:
            return self.abort(outcome, False)   # it does not even take an error
        self.relay.down.moved += n
        self.log_end(outcome)
        self.close_origin(False)
        self._clear_request()
        if close:
            return self.linger(False)
        self._set_state(IDLE)
        if self.input != NULL or self.sock.ready & CAN_READ:
            self.poller.call_again(self)
        return 0

    cdef int complete(self) except -1:
        cdef bint goes_on = not self.request.closing
        # A client that did not send "close" may have sent its next request already: it would
        # find a closed socket, and the reset would cost the rest of this response
        cdef bint at_once = not self.up_open and not self.request.persistent
        cdef Upstream upstream
        self.log_end(self.request.ending)
        if self.origin is not None:
            if self.request.origin_persistent:
                upstream, self.origin = self.origin, None
                self.park(upstream, not self.request.can_retry)
            else:
                self.close_origin(False)
        self._clear_request()
        if not goes_on:
            return self.linger(at_once)
        self._set_state(IDLE)
        if self.input != NULL or self.sock.ready & CAN_READ:
            self.poller.call_again(self)
        return 0

    cdef int abort(self, int outcome, bint abortive) except -1:
        self.log_end(outcome)
        self.close_origin(abortive)
        if abortive:
            set_abortive(&self.sock)
        return self.close()

    cdef int linger(self, bint at_once) except -1:
        """A close with bytes unread would send RST, and the client would lose the part of
        the reply that it has not read yet (RFC 9112 section 9.6; R1, R6)."""
        cdef bint unread = self.input != NULL or self.sock.ready & CAN_READ
        give_block(&self.input)
        # Broken before our own end is out is a reset: no client is left to read the reply.
        # Later it may mean only that both sides ended, and earlier bytes are read off.
        if self.sock.ready & BROKEN or (
                at_once and not unread and self.sock.kind == KERNEL):
            return self.close()
        half_close(&self.sock)
        self._set_state(LINGER)
        return self.discard_input()

    cdef int discard_input(self) except -1:
        cdef ssize_t n
        cdef char *data = scratch()
        while self.sock.ready & CAN_READ:
            n = try_recv(&self.sock, data, COPY_BLOCK)
            if n == 0 or (n < 0 and n != -linux.EAGAIN):
                return self.close()
            if n > 0:
                self.relay.up.moved += n
                if self.relay.up.moved > MOST_DISCARDED:
                    return self.close()
        return 0

    cdef int close_idle(self) except -1:
        # A request that came behind another, or that a late loop has not seen yet
        if self.input != NULL or has_unread(&self.sock):
            return 0
        self.context.counters.outcomes[<int>KEEPALIVE_TIMEOUT] += 1
        self.close()
        return 1

    cdef int resume(self, int phase) except -1:
        return refuse_call("resume")

    cdef int resume_response(self, char *data, size_t n) except -1:
        return refuse_call("resume_response")

    cdef bytes pool_key(self):
        return self.key

    cdef int park(self, Upstream upstream, bint instead) except -1:
        return upstream.close()

    cdef int cut_short(self, int outcome) except -1:
        return self.abort(outcome, True)

    cdef int close_origin(self, bint abortive) except -1:
        if self.extras.connector is not None:
            cancel(self.extras.connector)
            forget_dial(self)
        if self.extras.turn is not None:
            self.extras.turn.close()
        if self.origin is not None:
            if abortive:
                set_abortive(&self.origin.sock)
            self.origin.close()
            self.origin = None
        return 0

    cdef int close(self) except -1:
        """Idempotent. Gives back all resources of this connection, whatever else fails (R33)."""
        cdef Context context = self.context
        if self.state == CLOSED:
            return 0
        try:
            self.close_origin(False)
            self._clear_request()
            if self.entrance is not None and self.entrance.is_inside and not is_stream(&self.sock):
                self.entrance.leave()
            if context.observer is not None:
                context.observer.on_disconnect(self)
        finally:
            context.limiter.leave(&self.usage, self.poller.now_us)
            give_block(&self.input)
            leave_place(self)
            unlink(context, self)
            context.turned_away -= self.turned_away
            context.counters.states[CLOSED] += 1
            self.state = CLOSED
            UpstreamOwner.close(self)

    cdef void count_moved(self) noexcept:
        cdef Counters *counters = self.context.counters
        count_bytes(self.relay.up.moved, &self.counted_up, &counters.bytes_up,
                    &counters.spliced_up, self.relay.up.spliced)
        count_bytes(self.relay.down.moved, &self.counted_down, &counters.bytes_down,
                    &counters.spliced_down, self.relay.down.spliced)

    cdef int log_end(self, int outcome) except -1:
        """One ending: counted once, logged once, whatever a counter or a journal raises."""
        if self.stamps.start_us == 0:
            return 0                        # no request was begun: nothing to log
        self.context.ended_us = clock_us()
        try:
            self._count_end(outcome)
        finally:
            try:
                (<Journal>self.context.journal).write(self, outcome)
            finally:
                self.stamps.start_us = 0    # its fault ends the connection, and comes here again

    cdef int _count_end(self, int outcome) except -1:
        cdef Context context = self.context
        settle(&self.relay.up)              # what is logged has been sent
        settle(&self.relay.down)
        note_end(self, outcome)
        if self.extras is not NOTHING and has_responder(self.extras):
            end_responders(self.extras, TABLE_OF_ENDINGS[outcome].label)
        if context.observer is not None:
            (<Observer>context.observer).on_end(self, outcome)
        self.count_moved()
        count_reply(context.counters, self.request.method, self.request.status)
        count_end(context.counters, outcome, carries_tunnel(self), self.stamps.first_byte_us,
                  context.ended_us - self.stamps.start_us)
        if context.tally is not None:
            context.tally.count(
                None if self.request.rule == NOT_ASKED else self.snapshot.acl.label(
                    self.request.rule),
                () if self.account is None else self.account.groups,
                TABLE_OF_ENDINGS[outcome].fault == "policy", self.request_id)
        end_last_phase(&self.stamps, self.state, context.ended_us)
        if pipes_refused() != context.pipes_refused:
            context.note_pipes()
        return 0

    cdef int _clear_request(self) except -1:
        """Whatever the Python code of an abandoned wait raises, what is held is given back."""
        try:
            self._abandon_waits()
        finally:
            self._give_back()

    cdef int _abandon_waits(self) except -1:
        if self.extras is not NOTHING and has_responder(self.extras):
            try:
                end_responders(self.extras, "internal_error")   # if it was not recorded
            finally:
                forget_responders(self.extras)
        if self.request.room:
            self.context.room.leave(self)
        if self.request.queued:
            self.context.rate_queue.leave(self)
        if self.state == RESOLVE:           # the answer is not awaited any more
            self.context.resolver.abandon(self.request_id)
        elif self.state == DECIDE:
            self.snapshot.hook.abandon(self.request_id)
        elif self.state == DATAGRAMS:
            self.context.associations.pop(self.request_id).end()
        elif self.state == AUTH:
            leave_place(self)               # it was listed as waiting
        return 0

    cdef int _give_back(self) except -1:
        self.context.limiter.end_request(
            &self.usage, self.terms, &self.relay.up.allowance, &self.relay.down.allowance,
            self.poller.now_us)
        stop_pump(&self.relay.up)
        stop_pump(&self.relay.down)
        self.relay.up.tap = self.relay.down.tap = NULL
        self.relay.up.moved = self.relay.down.moved = self.counted_up = self.counted_down = 0
        self.relay.up.shut = self.relay.down.shut = self.until_close = False
        give_block(&self.head)
        memset(&self.stamps, 0, sizeof(self.stamps))
        self.account = self.snapshot = self.terms = self.login = None
        if self.entrance is not None and self.entrance.has_peer:
            self.address = self.entrance.peer   # only a request has a named client
        leave_parent(self)
        drop_extras(self)
        memset(&self.request, 0, sizeof(self.request))
        self.request.rule = NOT_ASKED
        drop_scan(&self.relay.up)
        drop_scan(&self.relay.down)
        self.input_seen = 0
        return 0


cdef int refuse_call(str method) except -1:
    """A probe is a client without a request: it has the dialogue with parents, and no way to
    find. A call there is a mistake of this program. The error ends the probe and is counted
    (R34); a return of 0 would leave the probe in its state until the deadline."""
    raise TypeError(f"only a session has {method}")


cdef const char *refusal_of(Client c, int outcome, bint close, size_t *length) noexcept:
    cdef const Request *r = &c.request
    cdef bint known = user_of(c) is not None
    if c.entrance is not None and c.entrance.is_inside and status_of(outcome) == 407:
        return NULL                         # it would look like the origin's
    if r.method == M_TUNNEL:                # no protocol would understand a reply
        return NULL
    if r.method > M_CONNECT:
        length[0] = build_socks_refusal(socks_refusal, r.hint, outcome)
        return socks_refusal if length[0] else NULL
    if r.hint != NO_HINT and (outcome == BAD_REQUEST or outcome == BAD_TARGET):
        return reply_with_hint(r.hint, close, r.method != M_HEAD, known, length)
    return reply_with_retry(outcome, close, r.method != M_HEAD, known, r.retry_s, length)


cdef object refusals_of(Client c):
    """Texts of the operator's own; None: there are none. A request that was refused before its
    user was known has no snapshot yet."""
    return (c.context.snapshot if c.snapshot is None else c.snapshot).refusals


cdef void note_end(Client c, int outcome) noexcept:
    cdef FlightRecorder recorder = c.context.recorder
    if outcome != OK and c.relay.up.error:
        note(recorder, <void *>c, c.poller.now_us, E_UP_FAILED, 0, c.relay.up.error)
    if outcome != OK and c.relay.down.error:
        note(recorder, <void *>c, c.poller.now_us, E_DOWN_FAILED, 0, c.relay.down.error)
    note(recorder, <void *>c, c.poller.now_us, E_ENDED, outcome, c.request.status)
