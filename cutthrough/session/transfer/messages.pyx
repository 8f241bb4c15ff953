# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A WebSocket with filters for its messages: frames come out of C here, and others go back.

    101 ─> TUNNEL    source ─> pieces ─> take()  filters.websocket  write() ─> pump ─> sink

Both directions are read up to a bound, as bodies are (see sluice), so a slow filter or peer stops
the sender of its own direction by TCP. The end of a stream waits for the frames before it. If both
have ended, the tunnel has. A reset is passed on behind the bytes before it.
Such a tunnel stays in its worker, because its filters do.
"""

from cutthrough.net.buffers cimport COPY_BYTES, scratch
from cutthrough.net.linux cimport EAGAIN
from cutthrough.net.pump cimport PUMP_NO_ROOM, PUMP_SINK_FAILED, Pumped, Tap
from cutthrough.net.relay cimport is_holding, push, run_pump, stop_pump
from cutthrough.net.sysio cimport CAN_READ, half_close, try_recv
from cutthrough.net.transport cimport UNFINISHED
from cutthrough.outcome cimport OK
from cutthrough.session.model.broken cimport outcome_of_client
from cutthrough.session.model.charge cimport after_turn, before_turn, outcome_of_meter
from cutthrough.session.model.recording_mode cimport is_recorded
from cutthrough.session.model.state cimport HALF_CLOSED, TUNNEL
from cutthrough.session.transfer.origin_alerts cimport outcome_of_origin
from cutthrough.wire.http1 cimport has_token
from cutthrough.wire.names cimport F_UPGRADE

cdef enum:
    # Bytes read and not taken
    MOST_HELD = 131072
    # As those of a sluice
    OF_PIECE = 64


cdef class Side:

    def take(self):
        """The next bytes; b"": the end; None: none have come yet."""
        if self.pieces and not self.finished:
            piece = self.pieces.pop(0)
            self.held -= len(piece) + <int>OF_PIECE
            if self.client is not None and not self.ended:
                self.client.poller.call_again(self.client)
            return piece
        return b"" if self.ended or self.finished or self.client is None else None

    def wait(self, waiter):
        """Sets the result of this future when `take` or `write` may go on."""
        if self.client is not None and not self.finished and (
                self.is_stuck() or not (self.pieces or self.ended)):
            self.waiter = waiter
        elif not waiter.done():
            waiter.set_result(None)

    def write(self, bytes data):
        """Sends a part of a frame. True: the sink is slow, wait before the next."""
        cdef Client c = self.client
        cdef Tap *tap
        cdef bint sent
        if c is None or self.lost or self.finished or (
                c.state != TUNNEL and c.state != HALF_CLOSED):
            return False
        try:
            c.poller.take_time()
            tap = self.pump.tap
            if self.taps_origin:
                self.pump.tap = NULL
            sent = push(self.pump, data, len(data), NULL, 0)
            self.pump.tap = tap
            if not sent:
                lose_sink(self)
            c.count_moved()
            c.extend()
        except BaseException:
            c.poller.contain(c)
        return self.is_stuck()

    def finish(self):
        """The last frame was written: the stream of this direction ends."""
        if self.client is None or self.finished:
            return
        self.finished = True
        # Nobody takes them, and at the bound nothing is read, nor is the end of the stream
        self.pieces, self.held = [], 0
        wake(self)
        self.client.poller.call_again(self.client)

    def is_stuck(self):
        return self.client is not None and not self.lost and is_holding(self.pump)

    def close(self):
        """The exchange has ended."""
        self.client = None
        self.pieces = []
        wake(self)


cdef int wake(Side s) except -1:
    waiter, s.waiter = s.waiter, None
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
    return 0


cdef int lose_sink(Side s) except -1:
    """Loses a side that takes no more bytes. Bytes from the other side may still be delivered."""
    cdef Client c = s.client
    if s.pump is &c.relay.down or not s.pump.error:
        s.failed = <unsigned char>outcome_of_client(s.pump.error)
    s.lost = True
    stop_pump(s.pump)
    wake(s)
    return c.poller.call_again(c)


cdef Side open_side(Client c, Pump *pump, bint taps_origin):
    cdef Side s = Side.__new__(Side)
    s.client, s.pump, s.taps_origin = c, pump, taps_origin
    s.pieces = []
    return s


cdef bint takes_messages(Client c, const Head *head, const char *data) except -1:
    cdef Filtering f
    if c.extras.filtering is None:
        return False
    f = filtering_of(c)
    if not f.run.wants_messages or not has_token(head, data, F_UPGRADE, b"websocket", 9):
        return False
    f.up_side = open_side(c, &c.relay.up, False)
    f.down_side = open_side(c, &c.relay.down, is_recorded(c))
    f.run.on_websocket(f.up_side, f.down_side)
    return True


cdef int give_messages(Client c, bint is_up, const char *data, size_t n) except -1:
    cdef Filtering f = filtering_of(c)
    return give(<Side>(f.up_side if is_up else f.down_side), data, n) if n else 0


cdef int give(Side s, const char *data, size_t n) except -1:
    if s.taps_origin and s.pump.tap != NULL:
        s.pump.tap.take(s.pump.tap, data, n)
    if not s.finished:
        s.pieces.append(data[:n])
        s.held += <int64_t>n + <int>OF_PIECE
    return 0


cdef int run_messages(Client c) except -1:
    cdef Side up = filtering_of(c).up_side, down = filtering_of(c).down_side
    cdef int failed
    if c.usage.meter != NULL and not before_turn(c):
        return c.cut_short(outcome_of_meter(c))
    run_side(up)
    run_side(down)
    c.count_moved()
    if c.usage.meter != NULL:
        after_turn(c)
    if down.lost:
        return c.abort(down.failed, True)       # no client is left
    failed = up.failed if up.failed and is_over(up) else (
        down.failed if down.failed and is_over(down) else OK)
    if failed:
        return c.abort(failed, True)
    if is_over(up) and is_over(down) and up.ended and down.ended:
        c.log_end(c.request.ending)
        return c.close()
    if (c.relay.up.shut or c.relay.down.shut) and c.state == TUNNEL:
        return c._set_state(HALF_CLOSED)
    return 0


cdef inline bint is_over(Side s) noexcept:
    """Is the last frame of this side out?"""
    return s.finished and (s.lost or not is_holding(s.pump))


cdef int run_side(Side s) except -1:
    """Sends the held bytes, and reads up to the bound."""
    cdef Client c = s.client
    cdef char *data = scratch()
    cdef bint moved = False
    cdef ssize_t n
    cdef Pumped how
    if not s.lost and is_holding(s.pump):
        s.pump.left = 0                         # it sends its held bytes, and reads nothing
        how = run_pump(s.pump)
        s.pump.left = -1
        moved = True
        if how == PUMP_SINK_FAILED or how == PUMP_NO_ROOM:
            lose_sink(s)
    while not s.ended and s.held < MOST_HELD and s.pump.source.ready & CAN_READ and (
            s.pump.allowance > 0):
        if c.poller.content_left <= 0:
            c.poller.call_again(c)
            break
        n = try_recv(s.pump.source, data, COPY_BYTES)
        if n == -EAGAIN:
            break
        moved = True
        if n > 0:
            c.poller.content_left -= n
            give(s, data, n)
            continue
        s.ended = True
        if n < 0 and n != -UNFINISHED:          # frames show if they are whole
            s.failed = <unsigned char>(outcome_of_client(<int>-n) if s.pump is &c.relay.up else
                                       outcome_of_origin(c, <int>-n))
    if s.finished and is_over(s) and not s.pump.shut:
        s.pump.shut = True
        if not s.lost:
            half_close(s.pump.sink)
    if moved:
        c.extend()
        if not s.is_stuck():
            wake(s)
    return 0
