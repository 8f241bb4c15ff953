# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A request whose rule replays: the player finds its recording, and that is the answer.

    replay ─> HELD ──────────────────────> RELAY      a recording answers
                ├> REQUEST (its body) ─> HELD ─> …    the body counts: it is read first
                └> the next phase                     none does: on to the origin, or refused

The player is Python, and takes some 12 us. If it would give the same answer again, the answer is
sent without it: see at_hand.

Nothing is resolved or dialled before (R60). The answer takes the path of an answer of filters, so
its head is read, judged and framed by the code of all responses. If a tunnel's TLS is to be opened,
the tunnel gets a socket in place of an origin; its other end is silent. It lasts until the client's
first bytes. If these are not TLS, the tunnel ends, because there is nothing to relay them to.

If the rule has filters, too, those of the request's head have run before, and those of its body
run while it is collected. The player sees the request without what they have added (R82). It
answers as an origin in Python would (see local), so its answers go through the filters as an
origin's do, and the filters have the request then.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t
from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.pump cimport Pump
from cutthrough.net.relay cimport start_pump
from cutthrough.outcome cimport OK, RECORDING_MISSED, REPLAYED
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.decision_cache import Decision
from cutthrough.policy.first_bytes cimport ONLY_HTTP_IS_INTERCEPTED, TLS_IS_INTERCEPTED
from cutthrough.session.model.chunked_body cimport drop_scan, scan_of
from cutthrough.session.model.client cimport Client, extras_of, user_of, worker_of_id
from cutthrough.session.model.phase cimport PHASE_WAY
from cutthrough.session.model.recording_mode cimport recording_of
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport HELD, RELAY, REQUEST, RESPONSE
from cutthrough.session.transfer.at_hand cimport (
    Answer, keep_answer, known_answer, make_answer, send_known)
from cutthrough.session.transfer.filtered_head cimport host_of
from cutthrough.session.transfer.filtering cimport (
    Filtering, Shown, filtering_of, send_head_now, shown_of)
from cutthrough.session.transfer.headers cimport write_head_up
from cutthrough.session.transfer.response cimport pump_down
from cutthrough.session.transfer.sluice cimport Sluice, close_sluice, open_sluice, run_sluice

cdef enum:
    MOST_REASON = 64            # of a Decision


cdef bint opens_tls(Client c) noexcept:
    cdef int fate = c.snapshot.acl.tls_of(c.request.rule)
    return not c.entrance.is_inside and (
        fate == TLS_IS_INTERCEPTED or fate == ONLY_HTTP_IS_INTERCEPTED)


cdef int judge_replayed(Client c) noexcept:
    return OK if opens_tls(c) else RECORDING_MISSED


cdef bint is_played_inside(Client c, int fate) noexcept:
    return recording_of(c) >= REPLAYS and (
        fate == TLS_IS_INTERCEPTED or fate == ONLY_HTTP_IS_INTERCEPTED)


cdef int begin_replay(Client c) except -1:
    cdef Answer answer = known_answer(c) if c.extras.filtering is None else None
    if answer is not None:
        return send_known(c, answer)
    return ask_player(c)


cdef int ask_player(Client c) except -1:
    cdef Replay f = Replay.__new__(Replay)
    cdef Request *r = &c.request
    cdef char text[ADDRESS_TEXT]
    cdef int n = print_address(&c.address, text)
    cdef Shown shown = shown_of(c)
    f.client, f.ending, f.is_played = c, REPLAYED, True
    if c.extras.filtering is not None:
        join(f, filtering_of(c))
    extras_of(c).filtering = f
    asker = ((user_of(c) or b"").decode("utf-8", "replace"), text[:n].decode(),
             c.snapshot.acl.rules[r.rule].shared)
    f.run = c.context.player.begin(f, (     # see Arrival and Asker in recording
        recording_of(c), shown.data[:shown.n].decode("latin-1"), host_of(c).decode(),
        r.port, "https" if c.entrance.is_inside else "http", r.minor, bool(c.up_open),
        bool(r.has_upgrade)), asker)
    wait_for_player(c)
    f.run.start()
    return 0


cdef int join(Replay f, Filtering filters) except -1:
    """The request has both."""
    f.filters = filters
    filters.replay, filters.is_played = f, True
    f.show_as(filters)
    return 0


cdef int wait_for_player(Client c) except -1:
    c._set_state(HELD)                      # which has no deadline of its own
    c.silent_ms = c.poller.time_ms() + c.context.timeout_ms[<int>RESPONSE]
    return c.poller.arm(c, c.silent_ms)


cdef class Replay(Filtering):

    @property
    def id(self):
        """Of the request, as the access log has it; "": it has ended."""
        cdef Client c = self.client
        return "" if c is None else (
            f"{worker_of_id(c, c.context.player.worker)}-{c.request_id}")

    @property
    def has_filters(self):
        return self.filters is not None

    cdef int show_as(self, Filtering filters) except -1:
        """For log and captures, as long as the player has the request."""
        self.marks, self.shown, self.added = filters.marks, filters.shown, filters.added
        self.shown_path_at, self.shown_path_len = filters.shown_path_at, filters.shown_path_len
        return 0

    cdef int give_back(self) except -1:
        """The filters have the request from now on, if it has any."""
        cdef Filtering filters = self.filters
        if filters is not None and self.client is not None:
            filters.up, filters.collected = self.up, self.collected
            filters.behind, filters.is_answered = self.behind, self.is_answered
            filters.function = self.function
            extras_of(self.client).filtering = filters
        return 0

    def take_over(self):
        """A filter answers in the player's place."""
        self.give_back()
        self.run.end("filter_answered")

    def take_head(self, bint chunked):
        """The filters of the request's body have its head ready."""
        cdef Client c = self.client
        cdef Shown shown
        if c is None or self.filters is None:
            return
        self.show_as(self.filters)
        shown = shown_of(c)
        self.chunked = self.behind.is_chunked = chunked
        self.run.take_head(shown.data[:shown.n].decode("latin-1"))

    def answer_by(self, function):
        """This function has the other end of the origin's connection, for the answer alone."""
        cdef Client c = self.client
        if c is None or not (c.state == REQUEST or c.state == HELD):
            return
        c.request.ending = REPLAYED
        self.is_answered = True
        self.function = function
        self.keep_rest()
        self.leave()

    def keep(self, bytes head, bytes body, bytes sent, int number, bytes packed not None):
        """This recording would answer the same request again. `sent`: the request's body."""
        cdef Client c = self.client
        if c is None or c.context.answers is None:
            return
        keep_answer(c, sent, make_answer(head, body, number, packed))

    def answer_whole(self, bytes head, bytes body not None):
        """Sends an answer that is all there, at once. False: it has to be paced, and nothing was
        sent."""
        cdef Client c = self.client
        cdef Pump *down
        if c is None:
            return True
        if c.usage.meter != NULL or c.request.status:
            return False
        down = &c.relay.down
        try:
            c.poller.take_time()
            self.drop_origin()
            if down.sink == NULL:
                down.may_splice = False
                start_pump(down, NULL, &c.sock, 0)
            else:                               # it may still hold a 1xx
                down.source = NULL
                down.left = 0
            c.request.ending = self.ending
            c.request.origin_persistent = False
            c._set_state(RELAY)
            send_head_now(c, head, PyBytes_AS_STRING(body), len(body))
            if c.state == RELAY:
                pump_down(c)
        except BaseException:
            c.poller.contain(c)
        return True

    def collect_request(self):
        """The request's body comes through the Sluice that is returned."""
        cdef Client c = self.client
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
            self.up = open_sluice(c, True, self.chunked, left)
            if self.filters is not None and self.filters.run.wants_upload:
                self.behind = self.filters.run.on_collect(self.up)
            run_sluice(self.up)
        except BaseException:
            c.poller.contain(c)
        return self.up if self.behind is None else self.behind

    def end_of_request(self):
        """The body was taken, whole."""
        cdef Client c = self.client
        if c is None or self.up is None or not (c.state == REQUEST or c.state == RELAY):
            return
        close_sluice(self.up)
        self.up = self.behind = None
        self.collected = True
        c.up_open = False
        if not self.is_answered:
            self.keep_rest()                # unless it was answered meanwhile
        elif self.filters is not None:
            self.filters.up = None
            if c.state == REQUEST:
                c._set_state(RESPONSE)

    def keep_rest(self):
        """What is left of a body, if any, waits until it is known where the request goes."""
        cdef Client c = self.client
        if c is None or c.state != REQUEST:
            return
        try:
            c.poller.take_time()
            wait_for_player(c)
        except BaseException:
            c.poller.contain(c)

    def answer_meanwhile(self, bytes head):
        """Begins an answer while the request's body still comes. Returns the Sluice for the
        answer's."""
        cdef Client c = self.client
        if c is None or not (c.state == REQUEST or c.state == HELD):
            return Sluice.__new__(Sluice)
        self.down = open_sluice(c, False, False, 0)
        try:
            c.poller.take_time()
            c.request.ending = self.ending
            c.request.origin_persistent = False
            c._set_state(RELAY)
            send_head_now(c, head, NULL, 0)
        except BaseException:
            c.poller.contain(c)
        return self.down if self.down is not None else Sluice.__new__(Sluice)

    def end_short(self):
        """The answer at hand is not whole: behind its body the connection is closed."""
        if self.client is not None:
            self.client.request.closing = True

    def end_as(self, str label, str text):
        """What is answered from now on ends with this outcome; `text` is logged."""
        self.ending = OUTCOMES[label]
        if self.client is not None:
            self.client.request.ending = self.ending
            extras_of(self.client).decision = Decision(
                False, reason=text.encode("ascii", "replace").decode()[:MOST_REASON])

    def switch(self, function):
        """A recording of a WebSocket answers: this function has the other end (see local)."""
        self.function = function
        if self.client is not None:
            self.client.request.ending = REPLAYED       # of its tunnel
        self.pass_on()

    def pass_on(self):
        """No recording answers the request: it goes to its origin."""
        cdef Client c = self.client
        if c is None or c.state != HELD:
            return
        c.up_open = c.up_open or self.collected
        self.leave()

    cdef int leave(self) except -1:
        cdef Client c = self.client
        try:
            c.poller.take_time()
            self.give_back()
            c.stamps.hook_us += end_brief_phase(&c.stamps)
            c.resume(PHASE_WAY)
        except BaseException:
            c.poller.contain(c)

    def send_collected(self):
        """Sends the head, before the body that was collected. True: the body is in chunks."""
        cdef Client c = self.client
        if c is None or self.up is None or self.up.lost:
            return False
        try:
            c.poller.take_time()
            if not write_head_up(c, self.up):
                return False
        except BaseException:
            c.poller.contain(c)
        return self.chunked

    def end(self, label):
        filters, self.filters = self.filters, None
        Filtering.end(self, label)
        if filters is not None:
            filters.end(label)
