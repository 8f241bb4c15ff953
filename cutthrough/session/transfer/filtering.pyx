# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""One exchange in the hands of filters: Python functions of the operator, by rule.

    act ─> HELD ─────────────> route ─> REQUEST ─────────> RESPONSE ──────────> RELAY
             on_request_head              on_request_body    on_response_head     on_response_body

`filters.run` calls the functions, in tasks, and this object carries out what they decide. A
head comes to them as bytes that our own code has read and rewritten, and a head of theirs is
read, judged and rewritten as if it had come from a client or an origin (R41). So nothing that
a filter does can break the framing. A body goes through a sluice, and from there to the same
pump. A player of recordings is in the place of filters: see recorded. No other exchange comes here.
"""

from libc.stdint cimport UINT32_MAX, int64_t, uint16_t, uint32_t
from libc.string cimport memcpy
from cutthrough.net.buffers cimport COPY_BLOCK, scratch
from cutthrough.net.pump cimport Pump, Tap
from cutthrough.net.relay cimport push, start_pump, stop_pump
from cutthrough.outcome cimport (
    CLIENT_RESET, FILTER_ANSWERED, FILTER_FAILED, FILTER_REFUSED, OK, OVERLOADED,
    RECORDING_MISSED, REPLAY_FAILED, status_of)
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.decision_cache import Decision
from cutthrough.session.model.awaited cimport NOBODY
from cutthrough.session.model.client cimport Client, Observer, extras_of, is_last
from cutthrough.session.model.context cimport writing_of
from cutthrough.session.model.phase cimport PHASE_CHARGE, PHASE_JUDGE
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport HELD, RELAY, REQUEST
from cutthrough.session.transfer.filtered_head cimport (
    is_chunked, is_same_target, move, rebuild, rewritten)
from cutthrough.session.transfer.headers cimport change_response, write_head_up
from cutthrough.session.transfer.sluice cimport (
    Sluice, close_sluice, fail, give, open_sluice, run_sluice)
from cutthrough.session.ways.parents cimport drop_parent
from cutthrough.wire.framing cimport (
    BODY_CHUNKED, BODY_LENGTH, BODY_UNTIL_CLOSE, Framing, read_response_framing)
from cutthrough.wire.http1 cimport HTTP_10, MAX_FIELDS, Head, parse_response
from cutthrough.wire.names cimport F_DATE, M_CONNECT, M_HEAD
from cutthrough.wire.reply cimport reply_to_replay, reply_with_text
from cutthrough.wire.rewrite cimport (
    ADD_CLOSE, KEEP_CHUNKED, REWRITE_ROOM, Span, Writing, build_response_head)

cdef enum:
    MOST_REASON = 64            # of a Decision
    MOST_BEHIND = COPY_BLOCK - MAX_FIELDS - REWRITE_ROOM    # see response.MOST_READ

# Of the response's head at hand; used within one call only
cdef Head head
cdef Framing framing

cdef str UNFIT = "the head is malformed or too long"
cdef const char *CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


cdef class Filtering:

    def go_on(self, bytes text, bytes shown=None):
        """The filters of the request's head are done. `text`: another head; None: the same.
        `shown`: that of log and capture, if it is neither."""
        cdef Client c = self.client
        cdef int outcome = OK
        if c is None or c.state != HELD:
            return
        try:
            c.poller.take_time()
            c.stamps.hook_us += end_brief_phase(&c.stamps)
            if text is None:
                c.resume(PHASE_CHARGE)
                return
            self.marks |= CHANGED_REQUEST
            self.show(shown)
            outcome = rebuild(c, text)
            if outcome == OK and not is_same_target(c):
                outcome = move(c)
            if outcome != OK:
                refuse_unfit(c, outcome, "on_request_head", UNFIT)
                return
            drop_parent(c)                  # another request may have another way
            c.resume(PHASE_JUDGE)
        except BaseException:
            c.poller.contain(c)

    def establish(self, bytes head):
        """The filters of a tunnel are done. `head`: of its 200; None: it has no field of theirs."""
        self.established = head
        self.go_on(None)

    def refuse(self, str label, str text):
        """Ends it with this outcome; `text` is logged, and sent if a filter refuses or a
        replay does."""
        cdef Client c = self.client
        cdef int outcome = OUTCOMES[label]
        cdef bint close, is_explained
        cdef bytes reply
        if c is None:
            return
        try:
            c.poller.take_time()
            is_explained = outcome == RECORDING_MISSED or outcome == REPLAY_FAILED
            extras_of(c).decision = Decision(False, reason=text if not is_explained else (
                text.encode("ascii", "replace").decode()[:MOST_REASON]))
            if self.up_side is not None:
                c.request.ending = outcome      # when both sides have their close
                self.run.on_refused(label, text)
                return
            if c.request.status or c.request.method > M_CONNECT or not (
                    is_explained or outcome == FILTER_REFUSED):
                c.refuse(outcome)
                return
            close = is_last(c)
            reply = reply_to_replay(
                status_of(outcome), label, text, close, c.request.method != M_HEAD,
                b"" if c.head == NULL else bytes_of(c.head)[:c.head.end]
            ) if is_explained else reply_with_text(
                status_of(outcome), label, text, close, c.request.method != M_HEAD)
            c.reply(outcome, status_of(outcome), reply, len(reply), close)
        except BaseException:
            c.poller.contain(c)

    def answer(self, bytes text):
        """Begins an answer of the filters' own. Returns the Sluice for its body."""
        cdef Client c = self.client
        cdef Pump *down
        cdef Sluice s
        if c is None:
            return Sluice.__new__(Sluice)
        if c.request.status:                # a head is out
            report_unfit(c, "respond", "answers too late")
            self.refuse("filter_failed", "answers too late")
            return Sluice.__new__(Sluice)
        down = &c.relay.down
        if self.down is not None:
            close_sluice(self.down)
        if self.replay is not None and c.extras.filtering is self.replay:
            self.replay.take_over()
        s = self.open_down(False, 0)
        try:
            c.poller.take_time()
            self.drop_origin()
            if down.sink == NULL:
                start_pump(down, NULL, &c.sock, 0)
            else:                           # it may still hold a 1xx
                down.source = NULL
                down.left = 0
            c.request.ending = self.ending
            c.request.origin_persistent = False
            if c.state != RELAY:
                c._set_state(RELAY)
            send_head_now(c, text, NULL, 0)
        except BaseException:
            c.poller.contain(c)
        return s

    def hold(self, int64_t ms):
        """For so long it waits for an operator, and no deadline of its state ends it."""
        cdef Client c = self.client
        if c is None:
            return
        self.marks |= WAS_AT_BREAKPOINT
        try:
            c.poller.take_time()
            c.awaited = NOBODY
            c.silent_ms = c.poller.time_ms() + ms
            c.poller.arm(c, c.silent_ms)
        except BaseException:
            c.poller.contain(c)

    def note_held(self, int64_t us):
        """A function has waited for so long. With the request's head that is hook_us."""
        cdef Client c = self.client
        cdef uint32_t *held_us = &self.down_held_us
        if c is None or c.state == HELD:
            return
        if c.state == REQUEST and self.held is None:
            held_us = &self.up_held_us
        held_us[0] = <uint32_t>min(held_us[0] + max(us, <int64_t>0), <int64_t>UINT32_MAX)

    def note_changed(self, bint is_up):
        """Filters have changed a message whose head is sent later."""
        self.marks |= CHANGED_REQUEST if is_up else CHANGED_RESPONSE

    cdef int show(self, bytes text) except -1:
        """A head that cannot be read leaves an empty one."""
        cdef Span path = Span(0, 0)
        self.shown = None if text is None else rewritten(self.client, text, &path)
        self.shown_path_at, self.shown_path_len = <uint16_t>path.at, <uint16_t>path.n
        return 0

    def hide_request_body(self):
        """No capture has it (R82). No byte of it was sent."""
        cdef Client c = self.client
        self.hides_body = True
        if c is not None and c.relay.up.tap != NULL:
            c.relay.up.tap.take = take_nothing

    def note_added(self, bytes secrets):
        """Looked for in the answer as it is taped (R82)."""
        self.added = secrets

    cdef Sluice open_down(self, bint chunked, int64_t left):
        cdef Client c = self.client
        self.down = open_sluice(c, False, chunked, left)
        if self.tapes:
            self.down.tap = c.relay.down.tap
        return self.down

    cdef int drop_origin(self) except -1:
        cdef Client c = self.client
        self.held = None
        c.close_origin(False)
        if self.up is not None:
            close_sluice(self.up)
        stop_pump(&c.relay.up)
        c.relay.up.sink = NULL
        return 0

    def pass_response(self, bytes text):
        """The filters of the response's head are done. `text`: another head; None: the same."""
        cdef Client c = self.client
        cdef bytes held = self.held
        cdef size_t n
        if c is None or held is None:
            return
        self.held = None
        self.passes = True
        try:
            c.poller.take_time()
            if text is not None:
                self.marks |= CHANGED_RESPONSE
                held = text + held[self.used:]
                self.used = len(text)
            n = len(held)
            if n > MOST_BEHIND:
                refuse_unfit(c, FILTER_FAILED, "on_response_head", UNFIT)
                return
            memcpy(scratch(), <const char *>held, n)
            c.resume_response(scratch(), n)
        except BaseException:
            c.poller.contain(c)

    def collect(self):
        """The response's body comes through the Sluice that is returned; nothing is sent."""
        cdef Client c = self.client
        cdef bytes held = self.held
        cdef char *data = scratch()
        cdef Sluice s
        cdef int outcome
        if c is None or held is None:
            return Sluice.__new__(Sluice)
        try:
            c.poller.take_time()
            self.held = None
            memcpy(data, <const char *>held, len(held))
            parse_response(&head, data, len(held), 0, &c.context.answer_limits)
            read_response_framing(&head, data, c.request.method, &framing)
            s = self.open_down(framing.kind == BODY_CHUNKED,
                               framing.length if framing.kind == BODY_LENGTH else -1)
            if s.tap != NULL:
                s.tap.take(s.tap, data, self.used)      # the head, and then pieces
            c.relay.down.left = -1          # for the pace of limits: see charge
            c.request.origin_persistent = (
                framing.persistent and not c.request.marks_origin and not c.up_open
                and not c.request.awaits_100)
            c._set_state(RELAY)
            outcome = give(s, data + self.used, len(held) - self.used)
            if outcome == OK:
                run_sluice(s)
            else:
                c.refuse(outcome)
        except BaseException:
            c.poller.contain(c)
        return self.down

    def send_head(self, bytes text):
        """The head before a body that was collected."""
        cdef Client c = self.client
        if c is None or c.state != RELAY or c.request.status:
            return
        try:
            c.poller.take_time()
            send_head_now(c, text, NULL, 0)
        except BaseException:
            c.poller.contain(c)

    def send_request(self, bytes text, bytes shown=None):
        """The head before a request's body that the filters have."""
        cdef Client c = self.client
        cdef int outcome
        if c is None or (self.up is None or self.up.lost) and c.extras.filtering is self:
            return
        try:
            c.poller.take_time()
            self.show(shown)
            outcome = rebuild(c, text)
            if outcome != OK:
                refuse_unfit(c, outcome, "on_request_body", UNFIT)
                return
            if not is_same_target(c):
                refuse_unfit(c, FILTER_FAILED, "on_request_body",
                             "the target cannot change: the origin is connected")
                return
            if c.extras.filtering is self:
                write_head_up(c, self.up)
            else:
                self.replay.take_head(is_chunked())
        except BaseException:
            c.poller.contain(c)

    def send_continue(self):
        """100, if the client waits for one."""
        cdef Client c = self.client
        if c is None or not c.request.awaits_100 or c.state != REQUEST:
            return
        c.request.awaits_100 = False
        try:
            c.poller.take_time()
            push(&c.relay.down, CONTINUE, 25, NULL, 0)
            c.extend()
        except BaseException:
            c.poller.contain(c)

    def end(self, label):
        """The exchange has ended. Idempotent."""
        if self.client is None:
            return
        self.client = None
        self.held = None
        if self.up is not None:
            close_sluice(self.up)
        if self.down is not None:
            close_sluice(self.down)
        if self.up_side is not None:
            self.up_side.close()
            self.down_side.close()
        if self.run is not None:
            self.run.end(label)
        replay, self.replay = self.replay, None
        if replay is not None:
            replay.end(label)


# --- faults ------------------------------------------------------------------------

# What the filters with this function have left cannot be sent. A replay has none.
cdef int report_unfit(Client c, str hook, str reason) except -1:
    cdef Filtering f = filtering_of(c)
    if f is not None and f.ending == FILTER_ANSWERED:
        f.run.on_unfit(hook, reason)
    return 0


cdef int refuse_unfit(Client c, int outcome, str hook, str reason) except -1:
    if outcome == FILTER_FAILED:
        report_unfit(c, hook, reason)
    return c.refuse(outcome)


cdef void take_nothing(Tap *tap, const char *data, size_t n) noexcept nogil:
    pass


# --- an answer that no origin gave -------------------------------------------------

cdef int send_head_now(Client c, bytes text, const char *body, size_t m) except -1:
    cdef Request *r = &c.request
    cdef char *data = scratch()
    cdef Writing writing
    cdef const char *date = NULL
    cdef Tap *tap
    cdef bint is_sent, tapes = tapes_origin(c)
    cdef int n = len(text)
    if n > MOST_BEHIND:
        return refuse_unfit(c, FILTER_FAILED, "respond", UNFIT)
    memcpy(data, <const char *>text, n)
    if parse_response(&head, data, n, 0, &c.context.answer_limits) != n or (
            read_response_framing(&head, data, r.method, &framing) != 0):
        return refuse_unfit(c, FILTER_FAILED, "respond", UNFIT)
    c.until_close = framing.kind == BODY_UNTIL_CLOSE
    r.closing = is_last(c) or c.until_close or r.minor == HTTP_10
    if not head.count[F_DATE]:
        date = c.context.date()
    writing = writing_of(
        c.context, r.closing * ADD_CLOSE | (framing.kind == BODY_CHUNKED) * KEEP_CHUNKED)
    n = build_response_head(&writing, &head, data, date)
    if n > 0:
        n = change_response(c, &writing, n)
    if n < 0:
        return c.refuse(-n)
    if c.context.observer is not None and not tapes:
        (<Observer>c.context.observer).on_response(c, &head, data)
    r.status = head.status
    tap = c.relay.down.tap
    if tapes:
        c.relay.down.tap = NULL
    is_sent = push(&c.relay.down, writing.out, n, body, m)
    c.relay.down.tap = tap
    if is_sent:
        return 0
    if down_sluice(c) is None:
        return c.abort(CLIENT_RESET if c.relay.down.error else OVERLOADED, True)
    return fail(filtering_of(c).down)
