# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A request whose rule replays: the player finds its recording, and that is the answer.

    PHASE_REPLAY ─┬──────────────────────────────────────> RELAY      an answer in memory (answer_cache)
                  └> HELD ───────────────────────────────> RELAY      a recording answers
                       ├> REQUEST (its body) ─> HELD ─> …             the body counts: it is read first
                       └> the next phase                              none does: on to the origin, or
                                                                      refused
The player is Python (recording.play), and takes some 12 us. A Replay, in extras.replay, carries out
its decisions. If it would give the same answer again, that answer is kept in memory, and the player
is not needed.

Nothing is resolved or dialled before (R60). If a tunnel's TLS is to be opened, the tunnel gets a
socket in place of an origin; its other end is silent. It lasts until the client's first bytes. If
these are not TLS, the tunnel ends, because there is nothing to relay them to.

If the rule has filters, too, those of the request's head have run before, and those of its body
run while it is collected. The player sees the request without their additions (R82). It
answers as an origin in Python would (see local), so its answers go through the filters as an
origin's do.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t
from cutthrough.net.address cimport ADDRESS_TEXT, Address, print_address
from cutthrough.net.buffers cimport bytes_of
from cutthrough.net.pump cimport Pump
from cutthrough.net.relay cimport start_pump
from cutthrough.outcome cimport OK, RECORDING_MISSED, REPLAY_FAILED, REPLAYED, status_of
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.decision_cache cimport denial
from cutthrough.session.model.chunked_body cimport drop_scan, scan_of
from cutthrough.session.model.client cimport Client, extras_of, is_last, user_of, worker_of_id
from cutthrough.session.model.phase cimport PHASE_TO_ORIGIN, parked
from cutthrough.session.model.recording_mode cimport opens_tls, plays, recording_of
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport HELD, RELAY, REQUEST, RESPONSE
from cutthrough.session.replay.answer_cache cimport (
    Answer, keep_answer, known_answer, make_answer, send_known, send_whole)
from cutthrough.session.transfer.filtered_head cimport host_of
from cutthrough.session.transfer.filtering cimport Shown, filtering_of, shown_of
from cutthrough.session.transfer.responder cimport (
    Responder, begin_answer, may_reply, send_own_head, up_sluice, write_head_up)
from cutthrough.session.transfer.sluice cimport Sluice, close_sluice, open_sluice, run_sluice
from cutthrough.session.ways.local cimport connect_function
from cutthrough.wire.names cimport M_HEAD
from cutthrough.wire.reply cimport reply_to_replay


cdef int replay(Client c) except -1:
    return parked(replay_at(c, NULL)) if plays(c) else OK


cdef int replay_at(Client c, const Address *address) except -1:
    cdef Answer answer = None
    if c.request.is_tunnel:
        return open_replayed(c, address)
    if c.extras.filtering is None:
        answer = known_answer(c)
    return ask_player(c) if answer is None else send_known(c, answer)


cdef int open_replayed(Client c, const Address *address) except -1:
    """The tunnel goes on without an origin, if its TLS is opened: its requests are replayed."""
    if not opens_tls(c):
        return c.refuse(RECORDING_MISSED)
    c.request.stands_in = True
    connect_function(c, c.context.player.hold)
    if c.origin is not None and address != NULL:
        c.origin.address = address[0]
    return 0


cdef int ask_player(Client c) except -1:
    cdef Replay replay = Replay.__new__(Replay)
    cdef Request *r = &c.request
    cdef char text[ADDRESS_TEXT]
    cdef int n = print_address(&c.address, text)
    cdef Shown shown = shown_of(c)
    replay.client, replay.ending, replay.has_request = c, REPLAYED, True
    extras_of(c).replay = replay
    asker = ((user_of(c) or b"").decode("utf-8", "replace"), text[:n].decode(),
             c.snapshot.acl.rules[r.rule].shared)
    replay.run = c.context.player.begin(replay, (   # see Arrival and Asker in recording
        recording_of(c), shown.data[:shown.n].decode("latin-1"), host_of(c).decode(),
        r.port, "https" if c.entrance.is_inside else "http", r.minor, bool(c.up_open),
        bool(r.has_upgrade)), asker)
    wait_for_player(c)
    replay.run.start()
    return 0


cdef int wait_for_player(Client c) except -1:
    c._set_state(HELD)                      # which has no deadline of its own
    c.silent_ms = c.poller.time_ms() + c.context.options.timeout_ms[<int>RESPONSE]
    return c.poller.arm(c, c.silent_ms)


cdef class Replay(Responder):

    @property
    def id(self):
        """The request's id in the access log; "" if the request has ended."""
        cdef Client c = self.client
        return "" if c is None else (
            f"{worker_of_id(c, c.context.player.worker)}-{c.request_id}")

    @property
    def has_filters(self):
        return self.client is not None and self.client.extras.filtering is not None

    def refuse(self, str label, str text):
        """Ends it with this outcome; `text` is logged, and sent if no recording answers."""
        cdef Client c = self.client
        cdef int outcome = OUTCOMES[label]
        cdef bint close, is_explained = outcome == RECORDING_MISSED or outcome == REPLAY_FAILED
        cdef bytes reply
        if c is None:
            return
        try:
            c.poller.take_time()
            extras_of(c).decision = denial(text)
            if not is_explained or not may_reply(c):
                c.refuse(outcome)
                return
            close = is_last(c)
            reply = reply_to_replay(
                status_of(outcome), label, text, close, c.request.method != M_HEAD,
                b"" if c.head == NULL else bytes_of(c.head)[:c.head.end])
            c.reply(outcome, status_of(outcome), reply, len(reply), close)
        except BaseException:
            c.poller.contain(c)

    def take_over(self):
        """A filter answers in the player's place."""
        self.has_request = False
        self.run.end("filter_answered")

    def take_head(self, bint chunked):
        """The filters of the request's body have its head ready."""
        cdef Client c = self.client
        cdef Shown shown
        if c is None:
            return
        shown = shown_of(c)
        self.chunked = self.behind.is_chunked = chunked
        self.run.take_head(shown.data[:shown.n].decode("latin-1"))

    def answer_by_function(self, function):
        """This function has the other end of the origin's connection, for the answer alone."""
        cdef Client c = self.client
        if c is None or not (c.state == REQUEST or c.state == HELD):
            return
        c.request.ending = REPLAYED
        self.is_answered = True
        self.function = function
        self.pause_request()
        self.resume()

    def cache_answer(self, bytes head, bytes body, bytes sent, int number, bytes packed not None):
        """This recording would answer the same request again. `sent`: the request's body."""
        cdef Client c = self.client
        if c is None or c.context.answer_cache is None:
            return
        keep_answer(c, sent, make_answer(head, body, number, packed))

    def answer_whole(self, bytes head, bytes body not None):
        """Sends an answer that is all there, at once. False: it has to be paced, and nothing was
        sent."""
        cdef Client c = self.client
        if c is None:
            return True
        if c.usage.meter != NULL or c.request.status:
            return False
        try:
            c.poller.take_time()
            self.drop_origin()
            send_whole(c, self.ending, head, PyBytes_AS_STRING(body), len(body))
        except BaseException:
            c.poller.contain(c)
        return True

    def collect_request_body(self):
        """The request's body comes through the Sluice that is returned."""
        cdef Client c = self.client
        cdef Sluice body = None
        cdef Pump *up
        cdef int64_t left
        if c is None or c.state != HELD:
            return None
        up = &c.relay.up
        left = up.left
        self.chunked = scan_of(up) != NULL
        drop_scan(up)
        up.left = -1                        # for the pace of limits: see charge
        c.relay.down.may_splice = False     # there is no source
        start_pump(&c.relay.down, NULL, &c.sock, 0)
        try:
            c.poller.take_time()
            c._set_state(REQUEST)
            body = c.extras.up = open_sluice(c, True, self.chunked, left, False)
            if c.extras.filtering is not None and filtering_of(c).run.wants_upload:
                self.behind = filtering_of(c).run.on_collect(body)
            run_sluice(body)
        except BaseException:
            c.poller.contain(c)
        return body if self.behind is None else self.behind

    def end_request_body(self):
        """The body was taken, whole."""
        cdef Client c = self.client
        if c is None or up_sluice(c) is None or not (c.state == REQUEST or c.state == RELAY):
            return
        close_sluice(up_sluice(c))
        c.extras.up = self.behind = None
        self.collected = True
        c.up_open = False
        if not self.is_answered:
            self.pause_request()                # unless it was answered meanwhile
        elif c.extras.filtering is not None and c.state == REQUEST:
            c._set_state(RESPONSE)

    def pause_request(self):
        """Makes the rest of a body, if any, wait until the request's way is known."""
        cdef Client c = self.client
        if c is None or c.state != REQUEST:
            return
        try:
            c.poller.take_time()
            wait_for_player(c)
        except BaseException:
            c.poller.contain(c)

    def answer_early(self, bytes head):
        """Begins an answer while the request's body still comes. Returns the Sluice for the
        answer's."""
        cdef Client c = self.client
        cdef Sluice body
        if c is None or not (c.state == REQUEST or c.state == HELD):
            return Sluice.__new__(Sluice)
        body = self.open_down(False, 0, False)
        try:
            c.poller.take_time()
            begin_answer(c, self.ending)
            send_own_head(c, head, NULL, 0)
        except BaseException:
            c.poller.contain(c)
        return body

    def close_after_answer(self):
        """The answer at hand is not whole: behind its body the connection is closed."""
        if self.client is not None:
            self.client.request.closing = True

    def set_outcome(self, str label, str text):
        """Sets the outcome of the answer that follows; `text` is logged."""
        self.ending = OUTCOMES[label]
        if self.client is not None:
            self.client.request.ending = self.ending
            extras_of(self.client).decision = denial(text)

    def answer_websocket(self, function):
        """A recording of a WebSocket answers: this function has the other end (see local)."""
        self.function = function
        if self.client is not None:
            self.client.request.ending = REPLAYED       # of its tunnel
        self.go_to_origin()

    def go_to_origin(self):
        """No recording answers the request: it goes to its origin."""
        cdef Client c = self.client
        if c is None or c.state != HELD:
            return
        c.up_open = c.up_open or self.collected
        self.resume()

    cdef int resume(self) except -1:
        cdef Client c = self.client
        try:
            c.poller.take_time()
            self.has_request = False
            c.stamps.hook_us += end_brief_phase(&c.stamps)
            c.resume(PHASE_TO_ORIGIN)
        except BaseException:
            c.poller.contain(c)

    def send_collected_head(self):
        """Sends the head, before the body that was collected. True: the body is in chunks."""
        cdef Client c = self.client
        if c is None or up_sluice(c) is None or up_sluice(c).lost:
            return False
        try:
            c.poller.take_time()
            if not write_head_up(c, up_sluice(c), self.chunked):
                return False
        except BaseException:
            c.poller.contain(c)
        return self.chunked
