# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""An answer that is not the origin's: of filters, or of the player of recordings.

    Filtering   extras.filtering   the rule's filters: they may answer, or change what passes
    Replay      extras.replay      the player: a recording answers, or the request is passed on

An answer's head comes as bytes, and is read, judged and framed as an origin's is (R41), so it
cannot break the framing. Its body goes through a sluice, and from there to the usual pump.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy, memmove, strlen
from cutthrough.net.buffers cimport COPY_BLOCK, HEAD_ROOM, bytes_of, scratch
from cutthrough.net.pump cimport Pump, Tap
from cutthrough.net.relay cimport push, start_pump, stop_pump
from cutthrough.outcome cimport FILTER_FAILED, HEAD_TOO_LARGE
from cutthrough.session.model.broken cimport outcome_of_client
from cutthrough.session.model.charge cimport renew_meanwhile
from cutthrough.session.model.client cimport Client, Observer, extras_of, is_last
from cutthrough.session.model.context cimport writing_of
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.state cimport RELAY, REQUEST
from cutthrough.session.transfer.headers cimport change_response, head_up, show_head
from cutthrough.session.transfer.sluice cimport Sluice, close_sluice, fail, open_sluice
from cutthrough.wire.framing cimport (
    BODY_CHUNKED, BODY_UNTIL_CLOSE, Framing, read_response_framing)
from cutthrough.wire.http1 cimport (
    HTTP_10, MAX_FIELDS, Field, Head, HeadLimits, parse_request, parse_response)
from cutthrough.wire.names cimport F_DATE, F_EXPECT, M_CONNECT
from cutthrough.wire.rewrite cimport (
    ADD_CLOSE, KEEP_CHUNKED, REWRITE_ROOM, Writing, build_response_head)

cdef enum:
    MOST_HEAD = COPY_BLOCK - MAX_FIELDS - REWRITE_ROOM      # see response.MOST_READ

# Of the head at hand; used within one call only
cdef Head head
cdef Framing framing

cdef str UNFIT = "the head is malformed or too long"
cdef const char *CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


cdef class Responder:

    def answer(self, bytes text):
        """Begins an answer of its own. Returns the Sluice for its body."""
        cdef Client c = self.client
        cdef Sluice s
        if c is None:
            return Sluice.__new__(Sluice)
        if c.request.status:                # a head is out
            report_unfit(c, "respond", "answers too late")
            self.refuse("filter_failed", "answers too late")
            return Sluice.__new__(Sluice)
        if down_sluice(c) is not None:
            close_sluice(down_sluice(c))
        s = self.open_down(False, 0, False)
        try:
            c.poller.take_time()
            self.drop_origin()
            begin_answer(c, self.ending)
            send_own_head(c, text, NULL, 0)
        except BaseException:
            c.poller.contain(c)
        return s

    def send_continue(self):
        """100, if the client waits for one."""
        cdef Client c = self.client
        if c is None or not c.request.awaits_100 or c.state != REQUEST:
            return
        c.request.awaits_100 = False
        try:
            c.poller.take_time()
            if push(&c.relay.down, CONTINUE, strlen(CONTINUE), NULL, 0):
                drop_expectation(c)
                c.extend()
            else:
                c.abort(outcome_of_client(c.relay.down.error), True)
        except BaseException:
            c.poller.contain(c)

    cdef Sluice open_down(self, bint chunked, int64_t left, bint trailers):
        cdef Client c = self.client
        cdef Sluice down = open_sluice(c, False, chunked, left, trailers)
        extras_of(c).down = down
        if self.taps_origin:
            down.tap = c.relay.down.tap
        return down

    cdef int drop_origin(self) except -1:
        cdef Client c = self.client
        c.close_origin(False)
        if up_sluice(c) is not None:
            close_sluice(up_sluice(c))
        stop_pump(&c.relay.up)
        c.relay.up.sink = NULL
        return 0

    def end(self, label):
        """The exchange has ended. Idempotent."""
        cdef Client c = self.client
        if c is None:
            return
        self.client = None
        if up_sluice(c) is not None:
            close_sluice(up_sluice(c))
        if down_sluice(c) is not None:
            close_sluice(down_sluice(c))
        run = self.run
        if run is not None:
            self.run = None                 # each has the other, and bodies
            run.end(label)


cdef void drop_expectation(Client c) noexcept:
    """The expectation was met here: the origin's 100 would be the client's second one. Some
    clients send the body again then (node), or wait for ever (Java)."""
    cdef HeadLimits limits = HeadLimits(HEAD_ROOM, HEAD_ROOM, MAX_FIELDS)
    cdef char *data = bytes_of(c.head)
    cdef Field *field
    cdef uint32_t i
    if parse_request(&head, data, c.head.end, 0, &limits) <= 0:
        return
    for i in range(head.n_fields, 0, -1):   # a line's move leaves those before it
        field = &head.fields[i - 1]
        if field.name == F_EXPECT:
            memmove(data + field.start, data + field.end, c.head.end - field.end)
            c.head.end -= field.end - field.start


cdef int begin_answer(Client c, int ending) except -1:
    cdef Pump *down = &c.relay.down
    renew_meanwhile(c)
    if down.sink == NULL:
        down.may_splice = False             # there is no source
        start_pump(down, NULL, &c.sock, 0)
    else:                                   # it may still hold a 1xx
        down.source = NULL
        down.left = 0
    c.request.ending = <unsigned char>ending
    c.request.origin_persistent = False
    if c.state != RELAY:
        c._set_state(RELAY)
    return 0


cdef int send_own_head(Client c, bytes text, const char *body, size_t m) except -1:
    cdef Request *r = &c.request
    cdef char *data = scratch()
    cdef Writing writing
    cdef const char *date = NULL
    cdef Tap *tap
    cdef bint is_sent, is_tapped = taps_origin(c)
    cdef int n = len(text)
    if n > MOST_HEAD:
        return refuse_unfit(c, FILTER_FAILED, "respond", UNFIT)
    memcpy(data, <const char *>text, n)
    if parse_response(&head, data, n, 0, &c.context.options.response_limits) != n or (
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
    if c.context.observer is not None and not is_tapped:
        (<Observer>c.context.observer).on_response(c, &head, data)
    r.status = head.status
    tap = c.relay.down.tap
    if is_tapped:
        c.relay.down.tap = NULL
    elif tap != NULL:
        tap.is_chunked = framing.kind == BODY_CHUNKED
    is_sent = push(&c.relay.down, writing.out, n, body, m)
    c.relay.down.tap = tap
    if is_sent:
        return 0
    if down_sluice(c) is None:
        return c.abort(outcome_of_client(c.relay.down.error), True)
    return fail(down_sluice(c))


cdef bint write_head_up(Client c, Sluice up, bint chunked) except -1:
    cdef size_t n
    cdef const char *text = head_up(c, &n)
    cdef bint is_shown = text == bytes_of(c.head)
    if text == NULL:
        c.refuse(HEAD_TOO_LARGE)
        return False
    if up.pump.tap != NULL:
        up.pump.tap.is_chunked = chunked
    if not is_shown:
        show_head(c, up.pump)
    up.put(text, n, is_shown)
    return True


cdef bint may_reply(Client c) noexcept:
    return not c.request.status and c.request.method <= M_CONNECT


cdef int report_unfit(Client c, str hook, str reason) except -1:
    if c.extras.filtering is not None and not is_with_player(c):
        (<Responder>c.extras.filtering).run.on_unfit(hook, reason)
    return 0


cdef int refuse_unfit(Client c, int outcome, str hook, str reason) except -1:
    if outcome == FILTER_FAILED:
        report_unfit(c, hook, reason)
    return c.refuse(outcome)
