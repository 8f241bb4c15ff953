# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A request whose rule replays: the player finds its recording, and that is the answer.

    replay ─> HELD ──────────────────────> RELAY      a recording answers
                ├> REQUEST (its body) ─> HELD ─> …    the body counts: it is read first
                └> the next phase                     none does: on to the origin, or refused

The player is Python, and takes some 12 us. If it would give the same answer again, the answer is
kept (`answers`), by the bytes of the request that count, until recordings change. When the request
comes again, and its body, if any, came with its head, the answer is sent without the player. Most
answers are made before a request asks for them: see recording.play.at_hand.

Nothing is resolved or dialled before (R60). The answer takes the path of an answer of filters, so
its head is read, judged and framed by the code of all responses. If a tunnel's TLS is to be opened,
the tunnel gets a socket in place of an origin; its other end is silent. It lasts until the client's
first bytes. If these are not TLS, the tunnel ends, because there is nothing to relay them to.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memchr
from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.buffers cimport bytes_of, give_block, shrink_block
from cutthrough.net.relay cimport Pump, start_pump
from cutthrough.outcome cimport OK, RECORDING_MISSED, REPLAYED
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.policy.acl cimport CACHES
from cutthrough.policy.decision_cache import Decision
from cutthrough.policy.first_bytes cimport ONLY_HTTP_IS_INTERCEPTED, TLS_IS_INTERCEPTED
from cutthrough.session.model.chunked_body cimport drop_scan, scan_of
from cutthrough.session.model.client cimport Client, user_of, worker_of_id
from cutthrough.session.model.inside cimport Inside
from cutthrough.session.model.phase cimport PHASE_WAY
from cutthrough.session.model.recording_mode cimport recording_of
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport end_brief_phase
from cutthrough.session.model.state cimport HELD, RELAY, REQUEST, RESPONSE
from cutthrough.session.transfer.answers cimport Answer, Answers, Line, make_answer, make_key
from cutthrough.session.transfer.filtered_head cimport host_of
from cutthrough.session.transfer.filtering cimport send_head_now
from cutthrough.session.transfer.headers cimport write_head_up
from cutthrough.session.transfer.response cimport pump_down
from cutthrough.session.transfer.sluice cimport Sluice, close_sluice, open_sluice, run_sluice
from cutthrough.wire.connect cimport Value

cdef enum:
    MOST_REASON = 64            # of a Decision
    OF_CACHE = 128              # first byte of a key; others begin with the version

# The owner of anonymous recordings, as recording.model.sharing has it
cdef bytes ANONYMOUS = b":"


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
    cdef Answer answer = known_answer(c)
    if answer is not None:
        return send_known(c, answer)
    return ask_player(c)


cdef int ask_player(Client c) except -1:
    cdef Replay f = Replay.__new__(Replay)
    cdef Request *r = &c.request
    cdef char text[ADDRESS_TEXT]
    cdef int n = print_address(&c.address, text)
    f.client, f.ending = c, REPLAYED
    c.filtering = f
    asker = ((user_of(c) or b"").decode("utf-8", "replace"), text[:n].decode(),
             c.snapshot.acl.rules[r.rule].shared)
    f.run = c.context.player.begin(f, (     # see Arrival and Asker in recording
        recording_of(c), bytes_of(c.head)[:c.head.end].decode("latin-1"), host_of(c).decode(),
        r.port, "https" if c.entrance.is_inside else "http", r.minor, bool(c.up_open),
        bool(r.has_upgrade)), asker)
    wait_for_player(c)
    f.run.start()
    return 0


cdef int wait_for_player(Client c) except -1:
    c._set_state(HELD)                      # which has no deadline of its own
    c.silent_ms = c.poller.time_ms() + c.context.timeout_ms[<int>RESPONSE]
    return c.poller.arm(c, c.silent_ms)


# --- answers at hand ---------------------------------------------------------------

cdef bytes key_of(Client c, const char *body, size_t m):
    """Of the request's line, or its whole head if fields or a body count, and of its body."""
    cdef Line line
    cdef const char *end
    line.minor, line.is_inside, line.port = c.request.minor, c.entrance.is_inside, c.request.port
    line.host = Value(c.key, len(c.key) - 2)
    if line.is_inside:                  # the host of requests that the player sees
        line.host = Value((<Inside>c.entrance).name, len((<Inside>c.entrance).name))
    line.text = Value(bytes_of(c.head), c.head.end)
    if m == 0 and not (<Answers>c.context.answers).by_fields:
        end = <const char *>memchr(line.text.text, b"\n", line.text.n)
        line.text.n = end - line.text.text if end != NULL else line.text.n
    return make_key(&line, Value(body, m))


cdef bytes key_in_cache(Client c, bytes key):
    """Of what an earlier request brought here: for its user, and rules that share alike."""
    cdef bytes user = user_of(c) or ANONYMOUS
    return b"%c%d:%b%b" % (
        OF_CACHE + c.snapshot.acl.rules[c.request.rule].shared, len(user), user, key)


cdef Answer known_answer(Client c):
    """The body of its request is taken then. None: the player has to look."""
    cdef Answers answers = c.context.answers
    cdef Answer answer
    cdef size_t m = 0
    cdef const char *body = NULL
    if answers is None or not answers.newer or c.usage.meter != NULL or (
            c.request.has_upgrade):
        return None
    if c.up_open:
        if scan_of(&c.relay.up) != NULL or c.input == NULL or c.request.awaits_100 or not (
                0 < c.relay.up.left <= <int64_t>(c.input.end - c.input.start)):
            return None
        m = <size_t>c.relay.up.left
        body = bytes_of(c.input) + c.input.start
    answer = find_answer(c, answers, key_of(c, body, m))
    if answer is None:
        return None
    if m:
        c.input.start += <uint32_t>m
        if c.input.start == c.input.end:
            give_block(&c.input)
        else:
            shrink_block(&c.input)
        c.relay.up.left = 0
        c.up_open = False
    return answer


cdef Answer find_answer(Client c, Answers answers, bytes key):
    cdef Answer answer
    if recording_of(c) != CACHES:
        return answers.find(key)
    answer = answers.find(key_in_cache(c, key))
    if answer is None:
        answer = answers.find(key)
        if answer is not None and not may_read(c, answer):
            return None
    return answer


cdef bint may_read(Client c, Answer answer):
    """As recording.model.sharing decides it. What an earlier request of the mode `replay` brought
    here is not for `cache`, where other readers may have another recording in its place."""
    cdef bytes owner = answer.owner
    if owner is None or (answer.is_private and owner == ANONYMOUS):
        return False
    return not owner or owner == (user_of(c) or ANONYMOUS) or (
        not answer.is_private and c.snapshot.acl.rules[c.request.rule].shared)


cdef int send_known(Client c, Answer answer) except -1:
    cdef Pump *down = &c.relay.down
    answer.hits += 1
    c._set_state(HELD)                  # as the player's answers
    down.may_splice = False
    start_pump(down, NULL, &c.sock, 0)
    c.request.ending = REPLAYED
    c._set_state(RELAY)
    send_head_now(
        c, answer.head, PyBytes_AS_STRING(answer.source) + answer.body_at, answer.body_size)
    return pump_down(c) if c.state == RELAY else 0


cdef class Replay(Filtering):

    @property
    def id(self):
        """Of the request, as the access log has it; "": it has ended."""
        cdef Client c = self.client
        return "" if c is None else (
            f"{worker_of_id(c, c.context.player.worker)}-{c.request_id}")

    def keep(self, bytes head, bytes body, bytes sent, int number, bytes packed not None):
        """This recording would answer the same request again. `sent`: the request's body."""
        cdef Client c = self.client
        cdef bytes key
        if c is None or c.context.answers is None:
            return
        key = key_of(c, sent, len(sent))
        if recording_of(c) == CACHES:
            key = key_in_cache(c, key)
        (<Answers>c.context.answers).put(key, make_answer(head, body, number, packed))

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
            run_sluice(self.up)
        except BaseException:
            c.poller.contain(c)
        return self.up

    def end_of_request(self):
        """The body was taken, whole."""
        cdef Client c = self.client
        if c is None or self.up is None or not (c.state == REQUEST or c.state == RELAY):
            return
        close_sluice(self.up)
        self.up = None
        self.collected = True
        c.up_open = False
        self.keep_rest()                    # unless it was answered meanwhile

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
            self.client.decision = Decision(
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
        self.missed = True
        c.up_open = c.up_open or self.collected
        try:
            c.poller.take_time()
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
