# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A body on its way through filters: bytes come out of C here, and others go back.

    source ─> pieces ─> take()  filters  write() ─> pump ─> sink

Two bounds hold the back-pressure: nothing is read while MOST_HELD bytes are not taken, and a
writer waits while the pump holds bytes that its sink did not take. So a slow filter, or a
slow peer, stops the other side by TCP, and holds its own connection alone (R31).

If bytes are limited, what is written is sent as the allowance lets it, because an answer of our own,
and a body that was collected, have no source whose reads would be paced.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy
from cutthrough.net.buffers cimport (
    COPY_BYTES, OF_REQUESTS, Block, bytes_of, give_block, keep_bytes, scratch)
from cutthrough.net.linux cimport EAGAIN, EPIPE
from cutthrough.net.pump cimport PUMP_NO_ROOM, PUMP_SINK_FAILED, Pumped, Tap
from cutthrough.net.relay cimport is_holding, push, run_pump, stop_pump
from cutthrough.net.sysio cimport CAN_READ, try_recv
from cutthrough.outcome cimport (
    BAD_FRAMING, BAD_RESPONSE_FRAMING, BODY_TOO_LARGE, CLIENT_CLOSED, OK, OVERLOADED,
    RESPONSE_TRUNCATED, status_of)
from cutthrough.policy.limits cimport Meter
from cutthrough.session.model.awaited cimport NOBODY, READER, SENDER, TAKER
from cutthrough.session.model.broken cimport outcome_of_client
from cutthrough.session.model.charge cimport after_turn, before_turn, outcome_of_meter
from cutthrough.session.model.client cimport Client
from cutthrough.session.model.stamps cimport note_sent
from cutthrough.session.model.state cimport RELAY, REQUEST, RESPONSE
from cutthrough.session.transfer.min_rate cimport wait_for
from cutthrough.session.transfer.origin_alerts cimport outcome_of_origin
from cutthrough.session.transfer.recording_room cimport outcome_of_loss
from cutthrough.wire.chunks cimport Chunks, scan_chunks, start_chunks

cdef enum:
    # Bytes read and not taken: the most of one read of a pump, twice
    MOST_HELD = 131072
    # … beside its bytes, because a sender may send each byte in a segment of its own
    OF_PIECE = 64
    MOST_PIECE = 32768          # bytes sent at a time of what waited for its pace


cdef class Sluice:

    def __dealloc__(self):
        free(self.chunks)

    def take(self):
        """The next bytes; b"": the end; None: none have come yet."""
        if self.pieces:
            piece = self.pieces.pop(0)
            self.held -= len(piece) + <int>OF_PIECE
            if self.client is not None and not self.ended:
                self.client.poller.call_again(self.client)
            return piece
        return b"" if self.ended or self.client is None else None

    def trailers(self):
        """The fields behind the body, by lines, when it has been read to its end."""
        cdef Py_ssize_t n = len(self.trailer)
        return bytes(self.trailer[:n - 2]) if n else b""      # without the empty line

    def wait(self, waiter):
        """Sets the result of this future when `take` or `write` may go on."""
        if self.client is not None and (
                self.is_stuck() or not (self.pieces or self.ended)):
            self.waiter = waiter
        elif not waiter.done():
            waiter.set_result(None)

    def write(self, bytes data):
        """Sends framed bytes. True: the sink or the limits are slow, wait before the next."""
        cdef Client client = self.client
        if client is None or self.unsent is not None or self.lost or (
                client.usage.meter == NULL and self.paced is None):
            return self.put(data, len(data), True)
        if self.paced is None:
            self.paced = []
        self.paced.append(data)
        client.poller.call_again(client)
        return True

    cdef bint put(self, const char *data, size_t n, bint is_shown) except -1:
        cdef Client client = self.client
        cdef Tap *tap
        cdef bint sent
        if client is not None and self.unsent is not None:
            self.unsent.append(data[:n])
            return True
        if client is None or self.lost or not REQUEST <= client.state <= RELAY:
            return False
        try:
            client.poller.take_time()
            tap = self.pump.tap
            if not is_shown or self.tap != NULL:
                self.pump.tap = NULL
            sent = push(self.pump, data, n, NULL, 0)
            self.pump.tap = tap
            if not sent:
                fail(self)
            else:
                client.count_moved()
                note_awaited(self)
                client.extend()
        except BaseException:
            client.poller.contain(client)
        return self.is_stuck()

    def finish(self):
        """The last byte was written."""
        cdef Client client = self.client
        if client is None or self.finished or not (
                self.unsent is not None or REQUEST <= client.state <= RELAY):
            return
        self.finished = True
        try:
            client.poller.take_time()
            if not self.is_stuck():
                end(self)
        except BaseException:
            client.poller.contain(client)

    def look_again(self):
        """There are bytes to be read again, by the limits of its request."""
        self.timer = None
        if self.client is not None:
            self.client.poller.call_again(self.client)

    def is_stuck(self):
        return self.client is not None and not self.lost and (
            self.unsent is not None or is_waiting(self))


cdef Sluice open_sluice(Client c, bint is_up, bint chunked, int64_t left, bint trailers):
    cdef Sluice s = Sluice.__new__(Sluice)
    s.client = c
    s.is_up = is_up
    s.pump = &c.relay.up if is_up else &c.relay.down
    s.pieces = []
    s.trailer = bytearray()
    s.left = -1 if chunked else left
    s.until_close = left < 0 and not chunked
    s.ended = s.left == 0
    if chunked:
        s.chunks = <Chunks *>malloc(sizeof(Chunks))
        if s.chunks == NULL:
            raise MemoryError
        start_chunks(s.chunks, True, trailers, not is_up)
        s.chunks.pauses = True
    s.pump.may_splice = False
    return s


cdef int close_sluice(Sluice s) except -1:
    s.client = s.paced = None
    s.pieces = []
    wake(s)
    return 0


cdef int wake(Sluice s) except -1:
    waiter = s.waiter
    if waiter is not None:
        s.waiter = None
        if not waiter.done():
            waiter.set_result(None)
    return 0


cdef int put_all(Sluice s, list unsent) except -1:
    for piece in unsent:
        s.write(piece)
    return wake(s)


cdef inline bint is_waiting(Sluice s) noexcept:
    """Whether bytes that were written wait for the sink, or for the limits."""
    return s.paced is not None or is_holding(s.pump)


cdef int note_paced(Sluice s) noexcept:
    cdef Meter *meter = s.client.usage.meter
    if meter != NULL and s.is_up:
        meter.up.is_awaited = s.paced is not None
    elif meter != NULL:
        meter.down.is_awaited = s.paced is not None
    return 0


cdef int send_paced(Sluice s) except -1:
    """Sends as much as the limits allow now."""
    cdef bytes piece
    cdef size_t n
    while s.paced is not None and s.pump.allowance > 0 and not is_holding(s.pump):
        piece = s.paced[0]
        n = <size_t>min(<int64_t>(len(piece) - s.paced_at), <int64_t>MOST_PIECE)
        n = <size_t>min(<int64_t>n, s.pump.allowance)
        s.paced_at += n
        s.put(PyBytes_AS_STRING(piece) + s.paced_at - n, n, True)
        if s.paced is None:                 # the exchange has ended
            return 0
        if s.paced_at == len(piece):
            s.paced_at = 0
            s.paced.pop(0)
            if not s.paced:
                s.paced = None
    return 0


cdef int run_sluice(Sluice s) except -1:
    cdef Client c = s.client
    cdef uint64_t before = s.pump.moved
    cdef int64_t held = s.held
    cdef int outcome, pause_ms
    if c is None or s.lost:
        return 0
    note_paced(s)
    if c.usage.meter != NULL and not before_turn(c):
        return c.refuse(outcome_of_meter(c))
    if is_holding(s.pump) and flush(s) in (PUMP_SINK_FAILED, PUMP_NO_ROOM):
        return fail(s)
    if s.paced is not None:
        send_paced(s)
        if s.client is None or s.lost:
            return 0
    outcome = draw(s)
    if s.ended:
        s.pump.left = 0                     # no bytes of its source wait for the allowance
    if outcome == OK and s.tap != NULL:
        outcome = outcome_of_loss(c)
    c.count_moved()
    note_paced(s)
    if c.usage.meter != NULL and (not s.ended or s.paced is not None):
        pause_ms = after_turn(c)
        if pause_ms and s.timer is None:
            s.timer = c.poller.loop.call_later(pause_ms / 1000, s.look_again)
    if outcome != OK:
        return end_early(s, outcome)
    if s.finished:
        return 0 if is_waiting(s) else end(s)
    if note_awaited(s) or s.pump.moved != before or s.held != held:
        c.extend()
    if s.waiter is not None and not is_waiting(s) and (
            s.pieces or s.ended or s.pump.moved != before):
        wake(s)
    return 0


cdef bint note_awaited(Sluice s) noexcept:
    """Notes the peer that owes a rate now. Returns True if it is another one than before. A client owes
    bytes as long as there is room for them, even if the filters have not taken them: else each piece
    would begin the grace anew."""
    cdef Client c = s.client
    cdef int whom = NOBODY
    if not s.is_up:
        return wait_for(c, READER if is_holding(s.pump) else NOBODY)
    if c.state != REQUEST:
        return False
    if s.ended or s.held >= MOST_HELD:
        whom = TAKER if is_holding(s.pump) else NOBODY
    elif s.pump.allowance > 0 and not c.waits_for_100():
        whom = SENDER
    return wait_for(c, whom)


cdef Pumped flush(Sluice s) noexcept:
    """The pump sends the bytes that it holds, and reads nothing."""
    cdef int64_t left = s.pump.left
    cdef Pumped how
    s.pump.left = 0
    how = run_pump(s.pump)
    s.pump.left = left
    return how


cdef int draw(Sluice s) except -1:
    """Reads up to the bound. Returns an Outcome."""
    cdef Client c = s.client
    cdef char *data = scratch()
    cdef size_t want
    cdef ssize_t n
    cdef int outcome
    while not s.ended and s.held < MOST_HELD:
        if s.is_up and c.input != NULL:
            outcome = give_input(s, data)
        elif not s.pump.source.ready & CAN_READ or s.pump.allowance <= 0:
            return OK
        elif c.poller.content_left <= 0:
            c.poller.call_again(c)
            return OK
        else:
            want = COPY_BYTES if s.left < 0 else <size_t>min(s.left, <int64_t>COPY_BYTES)
            n = try_recv(s.pump.source, data, want)
            if n == -EAGAIN:
                return OK
            outcome = give(s, data, n) if n > 0 else at_end(s, <int>-n)
        if outcome != OK:
            return outcome
    return OK


cdef int give_input(Sluice s, char *data) except -1:
    """Bytes that came with the request's head."""
    cdef Client c = s.client
    cdef Block *block = c.input
    cdef size_t n = block.end - block.start
    memcpy(data, bytes_of(block) + block.start, n)
    give_block(&c.input)
    return give(s, data, n)


cdef int give(Sluice s, char *data, size_t n) except -1:
    cdef Client c = s.client
    cdef size_t out_len = n
    cdef int64_t used = n
    if s.is_up:
        c.extras.drawn += n
    if s.chunks != NULL:
        used = 0
        out_len = 0
        if s.chunks.decode:
            used = scan_chunks(s.chunks, data, n, &out_len)
        if used >= 0 and not s.chunks.decode:
            used = give_trailers(s, data, n, used)
        if used < 0:
            return BAD_FRAMING if s.is_up else BAD_RESPONSE_FRAMING
        if s.is_up and c.context.options.max_body and (
                <int64_t>s.chunks.announced > c.context.options.max_body):
            return BODY_TOO_LARGE
        s.ended = s.chunks.done
    elif s.left >= 0:
        used = min(<int64_t>n, s.left)
        out_len = <size_t>used
        s.left -= used
        s.ended = s.left == 0
    c.poller.content_left -= n
    if s.tap != NULL:
        feed_tap(s, data, out_len)
    if out_len:
        s.pieces.append(data[:out_len])
        s.held += <int64_t>out_len + <int>OF_PIECE
    if not s.is_up:
        if <size_t>used < n or (s.chunks != NULL and s.chunks.padded):
            # Bytes behind the end, or chunks that were read leniently (R18)
            c.request.origin_persistent = False
    elif <size_t>used < n:
        c.input = keep_bytes(data + used, n - used, OF_REQUESTS)
        if c.input == NULL:
            c.request.persistent = False        # the next request is lost (R6)
            return OVERLOADED
    return OK


cdef int64_t give_trailers(Sluice s, char *data, size_t n, int64_t used) except? -1:
    """Returns the consumed bytes, the first `used` included."""
    cdef size_t out_len
    cdef int64_t more = scan_chunks(s.chunks, data + used, n - used, &out_len)
    if more < 0:
        return more
    s.trailer.extend(s.chunks.before[:s.chunks.before_len])
    s.trailer.extend(data[used:used + <int64_t>out_len])
    return used + more


cdef int feed_tap(Sluice s, const char *data, size_t n) except -1:
    """A body that came in chunks goes to the tap in chunks, with its trailers."""
    cdef bytes line
    if s.chunks != NULL and n:
        line = b"%x\r\n" % n
        s.tap.take(s.tap, line, len(line))
    if n:
        s.tap.take(s.tap, data, n)
    if s.chunks != NULL and n:
        s.tap.take(s.tap, b"\r\n", 2)
    if s.chunks != NULL and s.ended:
        line = b"0\r\n" + s.trailer
        s.tap.take(s.tap, line, len(line))
    return 0


cdef int at_end(Sluice s, int error) except -1:
    """The source has ended; 0: without an error. Returns an Outcome."""
    # The kernel reports a reset once: a send may have met it
    cdef int met = s.client.relay.up.error
    if s.is_up:
        return outcome_of_client(error) if error else CLIENT_CLOSED
    if error == 0 and met != EPIPE:
        error = met
    if error:
        return outcome_of_origin(s.client, error)
    if not s.until_close:
        return RESPONSE_TRUNCATED
    s.ended = True
    s.client.request.origin_persistent = False
    return OK


cdef int end_early(Sluice s, int outcome) except -1:
    if status_of(outcome) == 0:                 # its client has gone
        return s.client.abort(outcome, True)
    return s.client.refuse(outcome)


cdef int fail(Sluice s) except -1:
    """The sink takes no more, or there is no memory. An origin may have answered all the same
    (RFC 9112 section 9.5): its answer is read, and nothing more is sent."""
    cdef Client c = s.client
    if not s.is_up:
        return c.abort(outcome_of_client(s.pump.error), True)
    if not s.pump.error:
        return c.refuse(OVERLOADED)
    s.lost = True
    s.paced = None
    note_paced(s)
    stop_pump(s.pump)
    s.pump.left = 0
    s.pump.sink = NULL
    c.origin.sock.ready |= CAN_READ
    c.poller.call_again(c.origin)
    return wake(s)


cdef int end(Sluice s) except -1:
    """Everything was written, and taken."""
    cdef Client c = s.client
    s.client = None
    if not s.is_up:
        if not s.ended:
            c.request.origin_persistent = False
        return c.complete()
    c.extras.up = None                          # its bytes are the pump's, if they are sent again
    s.pump.left = 0
    if not s.ended:
        c.request.persistent = False            # the rest of the body is no request (R6)
    c.up_open = False
    if c.context.observer is not None:
        note_sent(&c.stamps)
    return c._set_state(RESPONSE) if c.state == REQUEST else 0
