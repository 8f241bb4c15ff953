# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Connections to origins whose bytes are streams: HTTP/2, if the origin's ALPN chooses it.

    handshake ─> h2 ─> a carrier ─┬─ stream ─ the first request's session
                                  └─ stream ─ another request of the same key

A session has a stream in place of a connection (decision 17). It writes a request of
HTTP/1.1, reads a response of HTTP/1.1, and closes the stream: no stream is pooled.

A carrier is shared by the requests that could share an idle connection: its key is the idle
pool's, way and name included. It is in the table from its first request on, if that would leave
its connection in the pool. A request that finds no room (the peer's bound, or GOAWAY) dials.

No request joins a silent carrier on which another one has waited for `ALIVE_US`: it dials. A carrier
ends after `upstream_idle_timeout` without a stream, and after `connect_timeout` without the
peer's first frame. Those without a stream are idle connections: they have places of the idle pool, by
its bounds.
"""

cimport cython
from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memcpy
from cutthrough.net.buffers cimport OF_RELAYS, Block, bytes_of, give_block, make_room
from cutthrough.net.multiplex cimport (
    HEARD_ALL, HEARD_LATE, HEARD_NO_ROOM, HEARD_SOME, Bounds, Due, is_stream, multiplexer)
from cutthrough.net.poller cimport Endpoint
from cutthrough.net.pump cimport Pump
from cutthrough.net.sysio cimport CAN_READ
from cutthrough.session.model.idle_pool cimport make_key
from cutthrough.session.model.request cimport MOST_TRIES
from cutthrough.session.model.turns cimport make_turn, take_turn

cdef enum:
    TURNS = 4                   # reads of one turn, 64 KiB each
    ALIVE_US = 5000000          # a silent peer may be gone without our knowing
    MOST_KNOWN = 4096


@cython.no_gc
cdef class OriginStream(Upstream):

    cdef int close(self) except -1:
        cdef Carrier carrier = self.carrier
        self.carrier = None
        Upstream.close(self)
        return 0 if carrier is None else carrier.after_close()


@cython.no_gc
cdef class Carrier(UpstreamOwner):

    cdef OriginStream ask(self):
        cdef const Multiplexer *m = multiplexer()
        cdef OriginStream stream
        if self.conn is None or not m.has_room(&self.conn.sock):
            return None
        stream = OriginStream.__new__(OriginStream)
        if not m.ask(&self.conn.sock, &stream.sock):
            return None
        self.table.wake(self)
        if self.asked_us <= self.heard_us:
            self.asked_us = self.conn.poller.now_us
        stream.carrier = self
        stream.address = self.conn.address
        self.conn.poller.add(stream)
        m.adopt(&stream.sock, <void *>stream)   # from here on the set keeps it alive
        return stream

    cdef int on_upstream(self, Upstream upstream) except -1:
        return self.run()

    cdef int on_upstream_fault(self, Upstream upstream) except -1:
        return self.end(HEARD_NO_ROOM)  # its streams have to know

    cdef int run(self) except -1:
        cdef const Multiplexer *m = multiplexer()
        cdef Upstream conn = self.conn
        cdef int heard = HEARD_SOME
        cdef int turn = 0
        cdef int state
        while heard == HEARD_SOME and turn < TURNS:
            turn += 1
            if conn.sock.ready & CAN_READ:
                self.heard_us = conn.poller.now_us
            heard = m.hear(&conn.sock, conn.poller.now_us)
            if (not self.is_begun or self.turn is not None) and (
                    not m.awaits_since_us(&conn.sock)):
                self.note_first(m)
            self.serve(m)
            if self.conn is None:       # a session that it woke has ended it
                return 0
        state = m.speak(&conn.sock)
        self.serve(m)                   # streams that speaking has ended
        if self.conn is None:
            return 0
        if heard > HEARD_SOME or state != HEARD_ALL:
            return self.end(heard if heard > HEARD_SOME else state)
        if heard == HEARD_SOME:
            conn.poller.call_again(conn)
        return self.settle(m)

    cdef int serve(self, const Multiplexer *m) except -1:
        cdef Upstream conn = self.conn
        cdef Endpoint stream
        cdef Due due
        while m.next_due(&conn.sock, &due):
            if due.owner == NULL:       # nobody asked for it
                continue
            stream = <Endpoint>due.owner
            if stream.is_open:
                try:
                    stream.on_ready()
                except BaseException:   # the stream's own (R34)
                    conn.poller.contain(stream)
        return 0

    cdef int settle(self, const Multiplexer *m) except -1:
        """Sets the deadline of a carrier, or ends it."""
        cdef Upstream conn = self.conn
        cdef int64_t now_us = conn.poller.now_us
        cdef int64_t begun_us = m.awaits_since_us(&conn.sock)
        cdef int64_t idle_us = m.idle_since_us(&conn.sock, now_us)
        cdef int64_t left_ms = max(<int64_t>1, self.table.idle_ms)
        if idle_us:
            left_ms = self.table.idle_ms - (now_us - idle_us) // 1000
            if self.key is None or not self.table.rest(self):
                left_ms = 0             # nobody will ask for a stream
        if begun_us:
            left_ms = min(left_ms, self.table.connect_ms - (now_us - begun_us) // 1000)
        if left_ms <= 0:
            return self.end(HEARD_LATE if begun_us else HEARD_ALL)
        return conn.set_deadline(left_ms)

    cdef int on_upstream_deadline(self, Upstream upstream) except -1:
        upstream.poller.take_time()
        return 0 if self.conn is None else self.settle(multiplexer())

    cdef int note_first(self, const Multiplexer *m) except -1:
        """SETTINGS, or it is a fault: others know from now on how many may wait."""
        self.is_begun = True
        if self.key is not None:
            self.table.known[self.key] = m.most(&self.conn.sock)
        return self.end_turn()

    cdef int end_turn(self) except -1:
        cdef Turn turn = self.turn
        self.turn = None
        return 0 if turn is None else turn.close()

    cdef int after_close(self) except -1:
        """One stream less: it may be the last one, or another may have waited for its place."""
        cdef const Multiplexer *m = multiplexer()
        cdef Upstream conn = self.conn
        if conn is not None and (m.count(&conn.sock) == 0 or m.is_due(&conn.sock)):
            conn.poller.call_again(conn)
        return 0

    cdef int end(self, int why) except -1:
        """Idempotent. `why`: the Heard that the peer is told."""
        cdef const Multiplexer *m = multiplexer()
        cdef Upstream conn = self.conn
        if conn is None:
            return 0
        try:
            self.table.forget(self)
            self.end_turn()
        finally:
            m.lose(&conn.sock, why)
            self.serve(m)
            self.conn = None
            m.end(&conn.sock)
            conn.close()
        return 0


cdef class Carriers:

    def __cinit__(self, IdlePool pool not None):
        self.pool = pool
        self.idle = {}
        self.idle_of = {}
        self.by_key = {}
        self.all = set()
        self.known = {}
        self.turns = {}

    def configure(self, idle_timeout, connect_timeout, response_timeout):
        """Seconds. A carrier that waits already keeps its deadline."""
        self.idle_ms = int(idle_timeout * 1000)
        self.connect_ms = int(connect_timeout * 1000)
        self.alive_us = min(ALIVE_US, int(response_timeout * 1000000))

    @property
    def held(self):
        """Connections that are open, with a stream or without."""
        return len(self.all)

    def clear(self):
        """Ends all of them."""
        cdef Carrier carrier
        for carrier in list(self.all):
            carrier.end(HEARD_ALL)

    cdef bint rest(self, Carrier carrier) except -1:
        if carrier in self.idle:
            return True
        if self.pool.most == 0 or self.idle_of.get(carrier.key, 0) >= self.pool.most_per_key:
            return False
        while self.pool.idle + len(self.idle) >= self.pool.most:
            if self.idle:
                (<Carrier>next(iter(self.idle))).end(HEARD_ALL)
            else:
                self.pool.give_up(1)
        self.idle[carrier] = None
        self.idle_of[carrier.key] = self.idle_of.get(carrier.key, 0) + 1
        self.pool.streams = len(self.idle)
        return True

    cdef int wake(self, Carrier carrier) except -1:
        if carrier not in self.idle:
            return 0
        del self.idle[carrier]
        self.idle_of[carrier.key] -= 1
        if self.idle_of[carrier.key] == 0:
            del self.idle_of[carrier.key]
        self.pool.streams = len(self.idle)
        return 0

    cdef int give_up(self) except -1:
        cdef Carrier carrier
        cdef int n = 0
        for carrier in list(self.all):
            if carrier.conn is not None and multiplexer().count(&carrier.conn.sock) == 0:
                carrier.end(HEARD_ALL)
                n += 1
        return n

    cdef OriginStream find(self, Client c, object key):
        """Returns a stream of the newest carrier that has room: an older carrier may have refused this
        request."""
        cdef Carrier carrier
        cdef OriginStream stream
        for carrier in reversed(self.by_key.get(key, ())):
            # Before its SETTINGS a request might wait behind others
            if multiplexer().awaits_since_us(&carrier.conn.sock):
                continue
            if self.may_be_gone(carrier, not c.request.can_retry):
                continue
            stream = carrier.ask()
            if stream is not None:
                return stream
        return None

    cdef bint may_be_gone(self, Carrier carrier, bint only_once) noexcept:
        """Has a carrier been silent since it was asked, or simply silent if the request may be sent
        only once? Then a middlebox has forgotten the connection, or the origin hangs."""
        cdef int64_t since_us = carrier.heard_us if only_once else carrier.asked_us
        return since_us >= carrier.heard_us and (
            carrier.conn.poller.now_us - since_us >= self.alive_us)

    cdef Carrier find_new(self, object key):
        """One without a frame of the peer yet, for which no request waits."""
        cdef Carrier carrier
        for carrier in self.by_key.get(key, ()):
            if carrier.turn is None and multiplexer().awaits_since_us(&carrier.conn.sock):
                return carrier
        return None

    cdef int forget(self, Carrier carrier) except -1:
        cdef list sharing
        self.wake(carrier)
        self.all.discard(carrier)
        if carrier.key is not None:
            sharing = self.by_key[carrier.key]
            sharing.remove(carrier)
            if not sharing:
                del self.by_key[carrier.key]
            carrier.key = None
        return 0


cdef bint has_streams(Client c) noexcept:
    return multiplexer() != NULL and multiplexer().is_agreed(&c.origin.sock)


cdef bint carry(Client c) except -1:
    cdef const Multiplexer *m = multiplexer()
    cdef Upstream conn = c.origin
    cdef Bounds bounds = Bounds(
        c.context.options.http2_streams, c.context.options.response_limits.head_bytes, True, False)
    cdef Carrier carrier
    cdef OriginStream stream
    if not m.begin(&conn.sock, &bounds, c.poller.now_us):
        return False
    carrier = Carrier.__new__(Carrier)
    carrier.conn = conn
    carrier.table = <Carriers>c.context.carriers
    carrier.table.all.add(carrier)
    conn.owner = carrier
    stream = carrier.ask()
    if stream is None:                  # no memory
        c.origin = None
        carrier.end(HEARD_NO_ROOM)
        return False
    stream.owner = c
    c.origin = stream
    conn.set_deadline(max(<int64_t>1, carrier.table.connect_ms))
    if conn.sock.ready & CAN_READ:
        c.poller.call_again(conn)
    return True


cdef int share(Client c) except -1:
    cdef OriginStream stream = <OriginStream>c.origin
    cdef Carrier carrier = stream.carrier
    cdef Carriers table
    if carrier is None or carrier.key is not None or carrier.is_private:
        return 0
    table = carrier.table
    carrier.is_private = c.request.marks_origin or table.idle_ms == 0
    if not carrier.is_private:
        carrier.key = make_key(&c.request.hop, c.pool_key())
        table.by_key.setdefault(carrier.key, []).append(carrier)
        if len(table.known) >= MOST_KNOWN:
            table.known.clear()
        if carrier.key not in table.known:
            table.known[carrier.key] = multiplexer().most(&carrier.conn.sock)
    if c.extras.turn is not None:              # others wait for SETTINGS, too
        carrier.turn = <Turn>c.extras.turn
        carrier.turn.client = c.extras.turn = None
    return 0


cdef bint takes_turns(Client c) except -1:
    cdef Carriers table = <Carriers>c.context.carriers
    cdef Carrier carrier
    cdef Turn turn
    if table is None or c.extras.turn is not None or c.extras.passage is not None or (
            c.request.marks_origin or needs_connection(c) or not table.known
            or c.request.tries == MOST_TRIES):
        return False
    key = make_key(&c.request.hop, c.pool_key())
    most = table.known.get(key)
    if most is None:
        return False
    turn = <Turn>table.turns.get(key)
    if turn is None:
        carrier = table.find_new(key)
        if carrier is not None:
            turn = carrier.turn = make_turn(table.turns, key)
    if turn is None or len(turn.waits) + 1 >= most:     # it will have no room for one more
        take_turn(c, table.turns, key)
        return False
    turn.wait(c)
    return True


cdef int note_http1(Client c) except -1:
    cdef Turn turn
    if c.extras.turn is None:
        return 0
    turn = <Turn>c.extras.turn
    (<Carriers>c.context.carriers).known.pop(turn.key, None)
    return turn.close()


cdef OriginStream take_stream(Client c):
    cdef Carriers table = <Carriers>c.context.carriers
    cdef OriginStream stream
    if table is None or not table.by_key or c.request.marks_origin or needs_connection(c):
        return None
    stream = table.find(c, make_key(&c.request.hop, c.pool_key()))
    if stream is not None:
        stream.reused = True
    return stream


cdef bint may_ask_again(Client c) noexcept:
    return (is_unread(c) and c.extras.up is None and not c.up_open
            and c.relay.up.moved <= c.head.end)


cdef bint is_unread(Client c) noexcept:
    return is_stream(&c.origin.sock) and multiplexer().is_unread(&c.origin.sock)


cdef bint take_back(Client c) noexcept:
    cdef Pump *up = &c.relay.up
    cdef Block *sent = NULL
    cdef Block *rest
    cdef uint32_t n, more
    if is_unread(c) and c.extras.up is None and up.sink != NULL and not up.is_piped:
        sent = multiplexer().give_sent(&c.origin.sock)
    if sent == NULL:
        return False
    n = sent.end - sent.start
    rest = up.held.block
    if rest != NULL:
        more = rest.end - rest.start        # of one read
        if not make_room(&sent, more, OF_RELAYS):
            give_block(&sent)
            return False
        memcpy(bytes_of(sent) + sent.end, bytes_of(rest) + rest.start, more)
        sent.end += more
        give_block(&up.held.block)
    c.count_moved()
    up.held.block = sent
    up.sink = NULL
    up.moved -= n                       # they will be moved again
    c.counted_up -= <uint32_t>n
    return True


cdef bint needs_connection(Client c) noexcept:
    return c.request.is_tunnel or c.request.has_upgrade or c.request.is_tethered
