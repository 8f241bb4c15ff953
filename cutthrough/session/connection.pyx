# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Reads the requests of a client's connection, and answers the events of its sockets.

For every request, from its own bytes alone (R21, R23): parse, read the target, authenticate; then
the phases (`phases`) judge it, find its way, and hand over to `forward` or `tunnel`. No earlier
request has any influence, but that it may have left a connection to the same origin (`tether`).
"""

cimport cython
from libc.stdint cimport uint16_t, uint32_t
from cutthrough.net cimport linux
from cutthrough.net.address cimport Address
from cutthrough.net.buffers cimport (
    COPY_BYTES, HEAD_BLOCK, Block, bytes_of, give_block, head_scratch, scratch, shrink_block)
from cutthrough.net.connector cimport (
    ALLOWED, FAULT, FORBIDDEN, Connector, Leave, Upstream)
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.sysio cimport BROKEN, CAN_READ, try_recv
from cutthrough.net.transport cimport Socket
from cutthrough.outcome cimport (
    BAD_REQUEST, CLIENT_CLOSED, INTERNAL_ERROR, OK, OVERLOADED)
from cutthrough.session.deadlines cimport (
    close_between, miss_head, miss_peek, miss_step, miss_transfer, miss_way)
from cutthrough.session.judge.authenticate cimport authenticate
from cutthrough.session.judge.named_client cimport take_named_client
from cutthrough.session.judge.source cimport key_of_pool, leave_by_source, prepare_origin
from cutthrough.session.model.broken cimport outcome_of_break, outcome_of_client
from cutthrough.session.model.client cimport (
    Client, Journal, Observer, extras_of, leave_place, rest)
from cutthrough.session.model.context cimport writing_of
from cutthrough.session.model.flight_recorder cimport E_CLIENT_ENDED, E_DEADLINE, E_READ, note
from cutthrough.session.model.passage cimport Passage
from cutthrough.session.model.phase cimport PHASE_JUDGE, PHASE_TO_ORIGIN, PHASE_VERIFY
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.shed cimport keep_head, keep_part
from cutthrough.session.model.stage cimport STAGE_TLS
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport (
    AUTH, CLOSED, DATAGRAMS, DECIDE, DELIVER, DIAL, HALF_CLOSED, HEAD, HELD, IDLE, LINGER,
    N_STATES, PARENT, PEEK, RELAY, REQUEST, RESOLVE, RESPONSE, SECURE, STREAMS, TUNNEL)
from cutthrough.session.model.turns cimport ends_wait
from cutthrough.session.phases cimport run_phases
from cutthrough.session.route cimport may_dial_directly, on_parent, take_origin
from cutthrough.session.stages.associate cimport associate, watch_association
from cutthrough.session.stages.pac cimport send_pac
from cutthrough.session.stages.runner cimport HEAD_NEXT, REQUEST_NEXT, STREAMS_NEXT, run_stages
from cutthrough.session.stages.streams cimport (
    begin_streams, close_idle_streams, lose_streams, run_streams)
from cutthrough.session.stages.target cimport IS_PAC, find_target
from cutthrough.session.transfer.act cimport end_hold
from cutthrough.session.transfer.delivery cimport cut_exchange, go_on, look_again
from cutthrough.session.transfer.forward cimport expect_body, on_client, on_origin
from cutthrough.session.transfer.intercept cimport go_on_securing, on_spare
from cutthrough.session.transfer.peek cimport peek
from cutthrough.session.transfer.response cimport replay_response
from cutthrough.session.transfer.tunnel cimport run_tunnel
from cutthrough.session.ways.parents cimport keep_fields, may_dial_parent, seeks_parent
from cutthrough.session.ways.reuse cimport judge_reuse
from cutthrough.session.ways.tether cimport cut_tether, park_origin
from cutthrough.wire.authority cimport Target
from cutthrough.wire.framing cimport BODY_NONE, Framing, read_request_framing
from cutthrough.wire.hops cimport answer_as_last, find_loop
from cutthrough.wire.http1 cimport (
    HTTP_11, Head, begins_with_head, has_token, parse_request)
from cutthrough.wire.names cimport (
    F_CONNECTION, F_UPGRADE, F_VIA, M_HEAD, M_OTHER, M_UDP)
from cutthrough.wire.reply cimport TLS_HERE
from cutthrough.wire.rewrite cimport (
    BY_HTTP2, KEEP_UPGRADE, Span, Writing, build_request_head, offers_upgrade)

ctypedef int (*handler_t)(Client) except -1

# Of one state; the table is at the end of this file.
cdef struct Handlers:
    handler_t client_ready
    handler_t origin_ready
    handler_t deadline


# Parts of the request being read; each is used within one call of parse() only.
cdef Head head
cdef Target target
cdef Framing framing


@cython.no_gc
cdef class Connection(Client):

    # --- the poller's events -------------------------------------------------------

    cdef int on_ready(self) except -1:
        return HANDLERS[self.state].client_ready(self)

    cdef int on_upstream(self, Upstream upstream) except -1:
        return HANDLERS[self.state].origin_ready(self)

    cdef int on_upstream_deadline(self, Upstream upstream) except -1:
        return self.on_upstream(upstream)   # a relay that was paced: see charge

    cdef int on_deadline(self) except -1:
        note(self.context.recorder, <void *>self, self.poller.time_ms() * 1000, E_DEADLINE,
             self.state, 0)
        return HANDLERS[self.state].deadline(self)

    cdef int on_fault(self) except -1:
        self.context.counters.faults += 1
        if self.state == STREAMS:           # no reply of HTTP/1.1 belongs there
            return self.close()
        self.request.persistent = False
        try:
            return self.refuse(INTERNAL_ERROR)
        except BaseException:           # the journal perhaps: nothing else would close it
            self.close()
            raise

    cdef int cut_short(self, int outcome) except -1:
        if self.state == DATAGRAMS:
            return self.abort(outcome, False)
        return cut_exchange(self, outcome)

    cdef int close_idle(self) except -1:
        return close_idle_streams(self) if self.state == STREAMS else Client.close_idle(self)

    cdef int close(self) except -1:
        try:
            if self.extras.tether is not None:
                cut_tether(self)
            if self.state == STREAMS:
                lose_streams(self)
        finally:
            Client.close(self)
        return 0

    cdef int resume(self, int phase) except -1:
        return run_phases(self, phase)

    cdef int resume_response(self, char *data, size_t n) except -1:
        return replay_response(self, data, n)

    cdef bytes pool_key(self):
        return key_of_pool(self)

    cdef int park(self, Upstream upstream, bint instead) except -1:
        return park_origin(self, upstream, instead)

    cdef Leave may_dial(self, const Address *address) except FAULT:
        if not (may_dial_parent(self, address) if seeks_parent(self) else
                may_dial_directly(self, address)):
            return FORBIDDEN
        return ALLOWED if self.request.hop.source == 0 else leave_by_source(self, address)

    cdef bint prepare_socket(self, const Socket *s, const Address *address) except -1:
        return prepare_origin(self, s, address)

    cdef int on_dialled(self, Connector connector, Upstream upstream, int error) except -1:
        return take_origin(self, connector, upstream, error)

    # --- stages --------------------------------------------------------------------

    cdef int pass_stages(self) except -1:
        cdef int next = run_stages(self)
        if next == STREAMS_NEXT:
            return begin_streams(self)
        if next == HEAD_NEXT and (self.input != NULL or self.sock.ready & CAN_READ):
            return self.read_head()
        if next != REQUEST_NEXT:
            return 0
        # The destination came without a head, and the user is known. Each datagram is judged
        return associate(self) if self.request.method == M_UDP else (
            run_phases(self, PHASE_JUDGE))

    # --- the head ------------------------------------------------------------------

    cdef int read_head(self) except -1:
        cdef Block *block = self.input
        cdef ssize_t n
        if block != NULL and block.end - block.start > self.input_seen:
            return self.parse(bytes_of(block) + block.start, block.end - block.start)
        # From a stranger no more is read than a head may have
        n = try_recv(&self.sock, scratch(), COPY_BYTES if self.known else HEAD_BLOCK)
        if n == -linux.EAGAIN:
            return 0
        if n <= 0:
            note(self.context.recorder, <void *>self, self.poller.now_us, E_CLIENT_ENDED, 0, -n)
            return self.abort(CLIENT_CLOSED if n == 0 else outcome_of_client(<int>-n), False)
        note(self.context.recorder, <void *>self, self.poller.now_us, E_READ, 0, n)
        if block == NULL:
            return self.parse(scratch(), n)
        if not keep_part(self, scratch(), n):
            return self.refuse(OVERLOADED)
        block = self.input
        return self.parse(bytes_of(block) + block.start, block.end - block.start)

    cdef int discard_empty_line(self) except -1:
        """Discards an empty line behind a request's body, or before the first request: it begins
        nothing (RFC 9112 section 2.2)."""
        give_block(&self.input)
        if self.sock.ready & CAN_READ:
            self.poller.call_again(self)
        return 0

    cdef int parse(self, char *data, size_t n) except -1:
        cdef Request *r = &self.request
        cdef int head_len, outcome
        if self.stamps.start_us == 0:
            if n == 2 and data[0] == c"\r" and data[1] == c"\n":
                return self.discard_empty_line()
            self.begin()
        head_len = parse_request(&head, data, n, self.input_seen, &self.context.options.request_limits)
        if head_len <= 0:                       # a HEAD's refusal has no content
            r.method = M_HEAD if begins_with_head(data, n) else M_OTHER
        if head_len == 0:
            if self.input == NULL and not keep_part(self, data, n):
                return self.refuse(OVERLOADED)
            self.input_seen = <uint32_t>n
            if self.state == IDLE:
                self._set_state(HEAD)
            rest(self)
            if self.sock.ready & CAN_READ:
                self.poller.call_again(self)
            return 0
        r.persistent = self.up_open = False
        if head_len < 0:
            if -head_len == BAD_REQUEST and data[0] == 0x16:   # a record of TLS's handshake
                r.hint = TLS_HERE
            return self.refuse(-head_len)
        r.method = head.method
        r.minor = head.minor
        self.snapshot = self.context.snapshot
        self.stamps.head_us = end_brief_phase(&self.stamps)
        outcome = self.read_request(data)
        if outcome == IS_PAC:
            return send_pac(self, &target)
        if outcome == OK:
            outcome = self.read_fields(data)
        if (<Journal>self.context.journal).wants_fields and (r.is_tunnel or r.has_upgrade):
            (<Journal>self.context.journal).note_head(self, &head, data)
        if not self.take_head(data, n, head_len):
            outcome = OVERLOADED
            r.persistent = False        # the next bytes are lost: their rest is no request (R6)
        return self.refuse(outcome) if outcome != OK else run_phases(self, PHASE_VERIFY)

    cdef int read_request(self, const char *data) except -1:
        """Reads the destination and the body's length. Returns an Outcome, or IS_PAC."""
        cdef int outcome = find_target(self, &head, data, &target)
        if outcome == OK:
            outcome = -read_request_framing(&head, data, &framing)
        if outcome != OK:
            return outcome
        self.request.persistent = framing.persistent
        self.up_open = framing.kind != BODY_NONE
        return OK

    cdef int read_fields(self, const char *data) except -1:
        """Reads the fields that the phases need, and authenticates the request. Returns an Outcome."""
        cdef int outcome
        if self.entrance.believed:
            take_named_client(self, &head, data)
        outcome = self.prepare(data)
        if outcome != OK:
            return outcome
        if self.snapshot.ways is not None:
            keep_fields(self, &head, data)
        if self.context.observer is not None:
            (<Observer>self.context.observer).on_request(self, &head, data)
        return authenticate(self, &head, data)

    cdef int prepare(self, const char *data) except -1:
        """Builds the head to send up. Returns an Outcome."""
        cdef Request *r = &self.request
        cdef Writing writing
        cdef Span path
        cdef int n
        if r.is_tunnel and self.snapshot.sees_connects:
            return self.keep_connect(data)
        if r.is_tunnel:
            return OK if head.count[F_VIA] == 0 else -find_loop(
                &head, data, self.context.pseudonym, self.context.pseudonym_len)
        r.has_upgrade = (
            head.first[F_UPGRADE] != 0 and r.minor == HTTP_11
            and framing.kind == BODY_NONE and has_token(&head, data, F_CONNECTION, b"upgrade", 7)
            and offers_upgrade(&head, data))
        writing = writing_of(self.context, r.has_upgrade * KEEP_UPGRADE
                             | is_stream(&self.sock) * BY_HTTP2)
        n = build_request_head(
            &writing, &head, data, &target, 443 if self.entrance.is_inside else 80, &path)
        if n < 0:
            return -n
        r.path_at = <uint16_t>path.at
        r.path_len = <uint16_t>path.n
        if not keep_head(self, head_scratch(), n):
            return OVERLOADED
        judge_reuse(self, &head, data, &framing)
        # Stored only: `judge` returns it after the rules, which may refuse the request first
        r.final_recipient_outcome = <unsigned char>answer_as_last(&head, data)
        return OK if expect_body(self, &framing) else OVERLOADED

    cdef int keep_connect(self, const char *data) except -1:
        """Keeps a CONNECT's fields for filters, without those of the hop. Returns an Outcome."""
        cdef Writing writing = writing_of(self.context, is_stream(&self.sock) * BY_HTTP2)
        cdef Span path
        cdef int n = build_request_head(&writing, &head, data, &target, 0, &path)
        if n < 0:
            return -n
        extras_of(self).passage = Passage.__new__(Passage)
        self.extras.passage.head = head_scratch()[:n]
        return OK

    cdef int take_head(self, const char *data, size_t n, size_t head_len) except -1:
        """The head has been read: drops it, and keeps the bytes behind it. 0: no room."""
        cdef Block *block = self.input
        self.input_seen = 0
        if block == NULL:
            return keep_part(self, data + head_len, n - head_len)
        block.start += <uint32_t>head_len
        shrink_block(&self.input)
        leave_place(self)                   # it was listed with a part of a head
        return True


# --- what each state does at an event ----------------------------------------------

cdef int take_request(Client c) except -1:
    """Reads the bytes that have come, or goes on with a handshake."""
    if c.sock.ready & CAN_READ or c.input != NULL or (
            c.stages & STAGE_TLS and c.stamps.start_us):
        return (<Connection>c).pass_stages() if c.stages else (<Connection>c).read_head()
    return 0


cdef int leave_bytes(Client c) except -1:
    """The client's bytes wait in the kernel while the proxy decides, resolves and dials."""
    if c.sock.ready & BROKEN:
        return c.abort(outcome_of_break(c), True)
    if c.extras.turn is None or not ends_wait(c):
        return 0
    c.request.dials = False                     # the connection was waited for
    return c.resume(PHASE_TO_ORIGIN)


cdef int take_body(Client c) except -1:
    return c.abort(outcome_of_break(c), True) if c.sock.ready & BROKEN else on_client(c)


cdef int discard(Client c) except -1:
    """Broken or not: unread bytes at a close would be a reset, and undo the reply (R1, R6)."""
    return c.discard_input()


cdef int close_at_once(Client c) except -1:
    return c.close()


cdef Handlers[N_STATES] HANDLERS


cdef int handle(int state, handler_t client_ready, handler_t origin_ready,
                handler_t deadline) except -1:
    HANDLERS[state] = Handlers(client_ready, origin_ready, deadline)
    return 0


# A spare connection is one that an interception has made, before its first request
#                    client is ready    origin is ready  deadline
handle(HEAD,        take_request,      on_spare,        miss_head)
handle(IDLE,        take_request,      on_spare,        miss_head)
handle(AUTH,        leave_bytes,       on_origin,       miss_step)
handle(DECIDE,      leave_bytes,       on_origin,       miss_step)
handle(HELD,        leave_bytes,       on_origin,       end_hold)
handle(RESOLVE,     leave_bytes,       on_origin,       miss_way)
handle(DIAL,        leave_bytes,       on_origin,       miss_way)
handle(PARENT,      leave_bytes,       on_parent,       miss_way)
handle(SECURE,      leave_bytes,       go_on_securing,  miss_step)
handle(REQUEST,     take_body,         on_origin,       miss_transfer)
handle(RESPONSE,    take_body,         on_origin,       miss_transfer)
handle(RELAY,       take_body,         on_origin,       miss_transfer)
handle(PEEK,        peek,              peek,            miss_peek)
handle(TUNNEL,      run_tunnel,        run_tunnel,      miss_transfer)
handle(DATAGRAMS,   watch_association, on_origin,       miss_step)
handle(HALF_CLOSED, run_tunnel,        run_tunnel,      miss_transfer)
handle(DELIVER,     go_on,             go_on,           look_again)
handle(STREAMS,     run_streams,       on_spare,        close_between)
handle(LINGER,      discard,           on_origin,       close_at_once)
handle(CLOSED,      take_body,         on_origin,       close_at_once)

for _state in range(N_STATES):
    assert HANDLERS[_state].client_ready != NULL, f"state {_state} has no handlers"
