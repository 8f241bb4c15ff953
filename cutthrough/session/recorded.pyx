# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A request whose rule replays: the player finds its recording, which is its answer.

    find_way ─> HELD ──────────────────────> RELAY      a recording answers
                  ├> REQUEST (its body) ─> HELD ─> …    the body counts: it is read first
                  └> route                              none does: on to the origin, or refused

Nothing is resolved or dialled before (R60). The answer takes the path of an answer of filters,
so its head is read, judged and framed by the code of all responses. A tunnel whose TLS is to be
opened gets an origin that is none: a socket whose other end says nothing. It lasts until the
client's first bytes; what is no TLS then ends, because there is nothing to relay it to.
"""

from libc.stdint cimport int64_t
from cutthrough.net.address cimport ADDRESS_TEXT, print_address
from cutthrough.net.buffers cimport bytes_of
from cutthrough.net.relay cimport Pump, start_pump
from cutthrough.outcome cimport HEAD_TOO_LARGE, OK, RECORDING_MISSED, REPLAYED
from cutthrough.policy.first_bytes cimport ONLY_HTTP_IS_INTERCEPTED, TLS_IS_INTERCEPTED
from cutthrough.policy.hop cimport HOP_FORWARD
from cutthrough.session.chunked_body cimport drop_scan
from cutthrough.session.client cimport Client
from cutthrough.session.filtered_head cimport host_of
from cutthrough.session.parents cimport head_for_parent
from cutthrough.session.phases cimport end_brief_phase
from cutthrough.session.request cimport Request
from cutthrough.session.sluice cimport close_sluice, open_sluice, run_sluice
from cutthrough.session.state cimport HELD, REQUEST, RESPONSE


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
    cdef Replay f = Replay.__new__(Replay)
    cdef Request *r = &c.request
    cdef char text[ADDRESS_TEXT]
    cdef int n = print_address(&c.address, text)
    f.client = c
    f.ending = REPLAYED
    c.filtering = f
    f.run = c.context.player.begin(
        f, recording_of(c), bytes_of(c.head)[:c.head.end], host_of(c).decode(), r.port,
        "https" if c.entrance.is_inside else "http", r.minor, c.up_open, text[:n].decode())
    c._set_state(HELD)
    c.silent_ms = c.poller.time_ms() + c.context.timeout_ms[<int>RESPONSE]
    c.poller.arm(c, c.silent_ms)
    f.run.start()
    return 0


cdef class Replay(Filtering):

    def collect_request(self):
        """The request's body comes through the Sluice that is returned."""
        cdef Client c = self.client
        cdef Pump *up
        cdef int64_t left
        if c is None or c.state != HELD:
            return None
        up = &c.relay.up
        left = up.left
        self.chunked = c.up_scan != NULL
        drop_scan(up, &c.up_scan)
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
        if c is None or c.state != REQUEST:
            return
        close_sluice(self.up)
        self.up = None
        self.collected = True
        c.up_open = False
        try:
            c._set_state(HELD)
        except BaseException:
            c.poller.contain(c)

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
            c.route(False)
        except BaseException:
            c.poller.contain(c)

    def send_collected(self):
        """Sends the head, before the body that was collected. True: the body is in chunks."""
        cdef Client c = self.client
        cdef const char *data
        cdef size_t n
        if c is None or self.up is None or self.up.lost:
            return False
        try:
            c.poller.take_time()
            data, n = bytes_of(c.head), c.head.end
            if c.request.hop.kind == HOP_FORWARD:
                data = head_for_parent(c, &n)
                if data == NULL:
                    c.refuse(HEAD_TOO_LARGE)
                    return False
            self.up.write(data[:n])
        except BaseException:
            c.poller.contain(c)
        return self.chunked
