# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""One exchange in the hands of filters: Python functions of the operator, by rule.

    act ─> HELD ─────────────> route ─> REQUEST ─────────> RESPONSE ──────────> RELAY
             on_request_head              on_request_body    on_response_head     on_response_body

`filters.run` calls the functions, in tasks, and this object carries out what they decide. A
head comes to them as bytes that our own code has read and rewritten, and a head of theirs is
read, judged and rewritten as if it had come from a client or an origin (R41). So nothing that
a filter does can break the framing. A body goes through a sluice, and from there to the same
pump. Only the requests of rules with filters, or a breakpoint, come here.
"""

from libc.stdint cimport UINT32_MAX, int64_t, uint16_t, uint32_t
from libc.string cimport memcpy
from cutthrough.net.buffers cimport COPY_BLOCK, scratch
from cutthrough.net.pump cimport Tap
from cutthrough.outcome cimport FILTER_FAILED, FILTER_REFUSED, OK, status_of
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.decision_cache cimport denial
from cutthrough.session.judge.authorize cimport judge_late
from cutthrough.session.model.awaited cimport NOBODY
from cutthrough.session.model.client cimport Client, drop_parent, extras_of, is_last
from cutthrough.session.model.phase cimport PHASE_CHARGE, PHASE_JUDGE, PHASE_WAY
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport HELD, RELAY, REQUEST
from cutthrough.session.transfer.filtered_head cimport (
    is_chunked, is_same_target, move, rebuild, rewritten)
from cutthrough.session.transfer.responder cimport (
    UNFIT, Responder, is_with_player, may_reply, refuse_unfit, send_own_head,
    up_sluice, write_head_up)
from cutthrough.session.transfer.sluice cimport Sluice, give, run_sluice
from cutthrough.wire.framing cimport (
    BODY_CHUNKED, BODY_LENGTH, Framing, read_response_framing)
from cutthrough.wire.http1 cimport MAX_FIELDS, Head, parse_response
from cutthrough.wire.names cimport M_HEAD
from cutthrough.wire.reply cimport reply_with_text
from cutthrough.wire.rewrite cimport REWRITE_ROOM, Span

cdef enum:
    MOST_BEHIND = COPY_BLOCK - MAX_FIELDS - REWRITE_ROOM    # see response.MOST_READ

# Of the response's head at hand; used within one call only
cdef Head head
cdef Framing framing


cdef class Filtering(Responder):

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
        """Ends it with this outcome; `text` is logged, and sent if a filter refuses."""
        cdef Client c = self.client
        cdef int outcome = OUTCOMES[label]
        cdef bint close
        cdef bytes reply
        if c is None:
            return
        try:
            c.poller.take_time()
            extras_of(c).decision = denial(text)
            if self.up_side is not None:
                c.request.ending = outcome      # when both sides have their close
                self.run.on_refused(label, text)
                return
            if outcome != FILTER_REFUSED or not may_reply(c):
                c.refuse(outcome)
                return
            close = is_last(c)
            reply = reply_with_text(
                status_of(outcome), label, text, close, c.request.method != M_HEAD)
            c.reply(outcome, status_of(outcome), reply, len(reply), close)
        except BaseException:
            c.poller.contain(c)

    def answer(self, bytes text):
        """As Responder.answer: in place of the origin's answer, and of the player's."""
        cdef Client c = self.client
        self.held = None
        if c is not None and is_with_player(c) and not c.request.status:
            c.extras.replay.take_over()
        return Responder.answer(self, text)

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

    def note_added(self, bytes secrets, mask):
        """`secrets`, by lines, are searched for in the answer that is recorded (R82)."""
        self.added = secrets
        self.mask = mask

    cdef int mask_head(self, const Head *head, char *data) except -1:
        """Masks the head of a response that goes to no filter (1xx), in its place, so that no length
        changes."""
        cdef uint32_t i
        if self.mask is None:
            return 0
        self.mask_text(data + head.target, head.target_len)
        for i in range(head.n_fields):
            self.mask_text(data + head.fields[i].value, head.fields[i].value_len)
        return 0

    cdef int mask_text(self, char *text, uint32_t n) except -1:
        cdef bytes masked = self.mask(text[:n])
        if len(masked) != n:
            raise ValueError("a mask has another length than its text")
        memcpy(text, <const char *>masked, n)
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
            parse_response(&head, data, len(held), 0, &c.context.options.response_limits)
            read_response_framing(&head, data, c.request.method, &framing)
            s = self.open_down(
                framing.kind == BODY_CHUNKED,
                framing.length if framing.kind == BODY_LENGTH else -1, framing.trailers)
            if s.tap != NULL:
                s.tap.is_chunked = s.chunks != NULL
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
        return s if s is not None else Sluice.__new__(Sluice)

    def send_head(self, bytes text):
        """The head before a body that was collected."""
        cdef Client c = self.client
        if c is None or c.state != RELAY or c.request.status:
            return
        try:
            c.poller.take_time()
            send_own_head(c, text, NULL, 0)
        except BaseException:
            c.poller.contain(c)

    def send_request(self, bytes text, bytes shown=None):
        """The head before a request's body that the filters have."""
        cdef Client c = self.client
        cdef bint can_retry
        cdef int outcome
        if c is None or not is_with_player(c) and (
                up_sluice(c) is None or up_sluice(c).lost):
            return
        try:
            c.poller.take_time()
            self.show(shown)
            can_retry = c.request.can_retry         # as its way and its own head have it
            outcome = rebuild(c, text)
            c.request.can_retry = c.request.can_retry and can_retry
            if outcome != OK:
                refuse_unfit(c, outcome, "on_request_body", UNFIT)
                return
            if not is_same_target(c):
                refuse_unfit(c, FILTER_FAILED, "on_request_body",
                             "the target cannot change: the origin is connected")
                return
            if not is_with_player(c):
                up_sluice(c).awaits_head = False
                if c.origin is None:
                    dial_anew(c, up_sluice(c), is_chunked())
                    return
            outcome = judge_late(c)
            if outcome != OK:
                c.refuse(outcome)
                return
            if is_with_player(c):
                c.extras.replay.take_head(is_chunked())
            else:
                write_head_up(c, up_sluice(c), is_chunked())
        except BaseException:
            c.poller.contain(c)

    def end(self, label):
        if self.client is None:
            return
        self.held = None
        if self.up_side is not None:
            self.up_side.close()
            self.down_side.close()
        Responder.end(self, label)


cdef bint are_at_work(Client c) except -1:
    cdef Filtering f
    if c.extras.filtering is None:
        return False
    f = filtering_of(c)
    return f.held is not None or (f.run is not None and f.run.at_work > 0)


cdef int dial_anew(Client c, Sluice up, bint chunked) except -1:
    """The origin has gone while the filters had the body. The rules judge the head when the next
    one's address is known: see forward.resume."""
    up.unsent = []
    if up.pump.tap != NULL:
        up.pump.tap.is_chunked = chunked
    c.request.resumes = c.request.dials = True
    return c.resume(PHASE_WAY)


cdef void take_nothing(Tap *tap, const char *data, size_t n) noexcept nogil:
    pass
