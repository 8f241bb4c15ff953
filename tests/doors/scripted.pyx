# cython: language_level=3
"""A transport without a kernel: both sides of a session in this process' memory.

A `Peer` is the other end of a session's socket: a client, or an origin. What a peer does becomes an
event of the next turn of the poller, as the kernel would report it, and the session reads and writes
through a row of the table of transports. Dials lead to `network`, and the clock stands still until
`pass_time` moves it.
"""

from collections.abc import Callable

from libc.errno cimport EAGAIN, ECONNREFUSED, ECONNRESET, EPIPE
from libc.stdint cimport int64_t, uint16_t
from libc.string cimport memcpy
from cutthrough.net cimport clock
from cutthrough.net.address cimport ADDRESS_TEXT, Address, parse_address, print_address
from cutthrough.net.connector cimport Upstream
from cutthrough.net.linux cimport EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP
from cutthrough.net.poller cimport BATCH, Endpoint, Poller
from cutthrough.net.sysio cimport CAN_READ, CAN_WRITE, clock_us, note_kernel_events
from cutthrough.net.transport cimport Socket, Transport, add_transport
from cutthrough.session.accept cimport ConnectionSink
from cutthrough.session.model.context cimport Context

cdef enum:
    MOST_PEERS = 65536      # of a process: `Socket.slot` has 16 bits

cdef unsigned int ENDED = EPOLLIN | EPOLLRDHUP
cdef unsigned int LOST = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLERR | EPOLLHUP

cdef Py_ssize_t socket_at():
    cdef Endpoint any_endpoint = Endpoint.__new__(Endpoint)
    return <char *>&any_endpoint.sock - <char *><void *>any_endpoint

cdef Py_ssize_t SOCKET_AT = socket_at()
cdef list peers = [None] * MOST_PEERS
cdef list free_slots = list(range(MOST_PEERS - 1, 0, -1))
cdef list due = []              # peers with events for the next turn
cdef list changed = []          # peers that the session has sent to, ended or closed
cdef object network = None      # (host, port) -> a Peer, or an errno
cdef Peer accepted = None       # of the accept under way


cdef class Peer:
    """`window`: bytes from the session that it takes without being read, `queue`: bytes that wait
    before it; < 0: as many as come."""
    cdef Endpoint near          # the session's end; None: closed, or not yet open
    cdef bytearray coming       # for the session
    cdef bytearray going        # from the session, not read
    cdef readonly bint ended, was_reset         # by the session
    cdef bint ends, resets, is_connected, is_due, is_full
    cdef int error              # the session's next call returns it
    cdef unsigned int events
    cdef public Py_ssize_t window, queue
    cdef readonly str host
    cdef readonly int port

    def __init__(self, str host="", int port=0, bint is_connected=True):
        self.coming = bytearray()
        self.going = bytearray()
        self.window = self.queue = -1
        self.host = host
        self.port = port
        self.is_connected = is_connected

    # --- what a client or an origin does

    def put(self, bytes data):
        """Sends. False: the session has closed its end."""
        if self.near is None:
            return False
        if not self.resets:
            self.coming += data
            self.note(EPOLLIN)
        return True

    def end(self):
        """FIN."""
        self.ends = True
        self.note(ENDED)

    def reset(self, int error=ECONNRESET):
        """RST, or another end of a connection that is under way."""
        self.resets = True
        self.error = error
        self.note(LOST)

    def connect(self):
        """The handshake's end, if the dial still waits."""
        self.is_connected = True
        self.note(EPOLLOUT)

    def take(self, Py_ssize_t n):
        """Up to n bytes that the session has sent."""
        cdef bytes data = bytes(self.going[:n])
        del self.going[:n]
        if self.is_full and self.room() > self.queue // 3:      # as of a socket of the kernel
            self.is_full = False
            self.note(EPOLLOUT)
        return data

    @property
    def unread(self):
        """Bytes that the session has not read."""
        return len(self.coming) if self.near is not None else 0

    @property
    def is_open(self):
        """Whether the session holds its end."""
        return self.near is not None

    # --- what the session's calls become

    cdef void note(self, unsigned int events):
        if self.near is None:
            return
        self.events |= events
        if not self.is_due:
            self.is_due = True
            due.append(self)

    cdef Py_ssize_t room(self):
        if self.queue < 0:
            return 1 << 40
        return max(0, self.queue + max(0, self.window) - len(self.going))

    cdef ssize_t fail(self):
        """The kernel's word of a reset: an errno once, then an end."""
        cdef int error = self.error
        self.error = 0
        return -error

    cdef ssize_t give(self, Socket *s, char *buf, size_t n, bint stays):
        cdef char *data = self.coming
        n = min(n, <size_t>len(self.coming))
        if n:
            memcpy(buf, data, n)
            if not stays:
                self.drop(s, n)
            return n
        if self.error:
            return self.fail()
        if self.ends or self.resets:
            return 0
        s.ready &= ~CAN_READ
        return -EAGAIN

    cdef void drop(self, Socket *s, size_t n):
        del self.coming[:n]
        if not self.coming:
            changed.append(self)
        if not (self.coming or self.ends or self.resets):
            s.ready &= ~CAN_READ

    cdef ssize_t accept(self, Socket *s, const char *a, size_t n, const char *b, size_t m):
        cdef size_t room = self.room()
        cdef size_t first = min(n, room)
        cdef size_t second = min(m, room - first)
        if self.resets:
            return self.fail() if self.error else -EPIPE
        self.going += a[:first]
        if second:
            self.going += b[:second]
        if first + second < n + m:
            s.ready &= ~CAN_WRITE
            self.is_full = True
        changed.append(self)
        return first + second

    cdef void leave(self):
        """The session closes its end: with bytes unread, that is a reset."""
        self.near = None
        if self.coming:
            self.was_reset = True
        self.ended = True
        changed.append(self)

    cdef int64_t waiting(self):
        return 0 if self.queue < 0 else max(0, len(self.going) - max(0, self.window))


cdef inline Peer of(const Socket *s):
    return <Peer>peers[s.slot]


cdef int open_peer(Socket *s, int context, const char *name) noexcept nogil:
    with gil:
        return open_end(s)


cdef int open_end(Socket *s) noexcept:
    """A client that is accepted, or the end of a dial."""
    global accepted
    cdef Endpoint endpoint = <Endpoint><void *>(<char *>s - SOCKET_AT)
    cdef char[ADDRESS_TEXT] text
    cdef int n
    peer = accepted
    accepted = None
    if peer is None:
        n = print_address(&(<Upstream>endpoint).address, text)
        try:
            peer = network(text[:n].decode(), (<Upstream>endpoint).address.port)
        except BaseException as fault:
            changed.append(fault)
            return -ECONNREFUSED
        if isinstance(peer, int):
            return -<int>peer
    s.slot = <uint16_t>free_slots.pop()
    peers[s.slot] = peer
    (<Peer>peer).near = endpoint
    if (<Peer>peer).is_connected:
        s.ready = CAN_WRITE
    return 0


cdef ssize_t receive(Socket *s, void *buf, size_t n) noexcept nogil:
    with gil:
        return of(s).give(s, <char *>buf, n, False)


cdef ssize_t peek(Socket *s, void *buf, size_t n) noexcept nogil:
    with gil:
        return of(s).give(s, <char *>buf, n, True)


cdef ssize_t skip(Socket *s, size_t n) noexcept nogil:
    with gil:
        of(s).drop(s, n)
        return n


cdef ssize_t transmit(Socket *s, const void *a, size_t n, const void *b,
                      size_t m) noexcept nogil:
    with gil:
        return of(s).accept(s, <const char *>a, n, <const char *>b, m)


cdef int64_t untaken(Socket *s) noexcept nogil:
    with gil:
        return of(s).waiting()


cdef bint holds_back(Socket *s) noexcept nogil:
    return False


cdef void note_events(Socket *s, unsigned int events) noexcept nogil:
    note_kernel_events(s, events)


cdef void half_close(Socket *s) noexcept nogil:
    with gil:
        of(s).ended = True
        changed.append(of(s))


cdef void set_abortive(Socket *s) noexcept nogil:
    with gil:
        of(s).was_reset = True


cdef void release(Socket *s) noexcept nogil:
    with gil:
        of(s).leave()
        peers[s.slot] = None
        free_slots.append(s.slot)
        s.slot = 0


cdef Transport functions
functions.open = open_peer
functions.recv = receive
functions.peek = peek
functions.skip = skip
functions.send = transmit
functions.untaken = untaken
functions.holds_back = holds_back
functions.note_events = note_events
functions.half_close = half_close
functions.set_abortive = set_abortive
functions.release = release
cdef int KIND = add_transport(&functions)


# --- the worker's parts


def take_over(Context context):
    """From now on this context's poller turns when it is told to, and its dials lead to `network`."""
    cdef Poller poller = context.poller
    poller.loop.remove_reader(poller.epfd)
    poller.loop = None
    poller.dials = KIND


def set_resolver(Context context, resolver):
    """Who is asked for names."""
    context.resolver = resolver


def set_network(function: Callable[[str, int], object] | None):
    """Who is asked for the peer of each dial."""
    global network
    network = function


def accept(ConnectionSink sink, Peer peer):
    """A client comes; its address is the peer's."""
    global accepted
    cdef Address address
    if not parse_address(peer.host.encode(), &address):
        raise ValueError(peer.host)
    address.port = <uint16_t>peer.port
    sink.transport = KIND
    accepted = peer
    try:
        sink.on_accept(-1, &address)
    finally:
        accepted = None


def turn(Poller poller, bint must=False):
    """One turn of the poller, for what peers have done since the last one. False: there was nothing
    to do, and no turn unless it `must` be."""
    cdef int n = 0
    cdef Peer peer
    cdef list rest = []
    for peer in due:
        if peer.near is None:
            peer.is_due = False
            peer.events = 0
        elif peer.near.poller is not poller or n == BATCH:
            rest.append(peer)
        else:
            poller.events[n].events = peer.events
            poller.events[n].data.ptr = <void *>peer.near
            n += 1
            peer.is_due = False
            peer.events = 0
    due[:] = rest
    if n == 0 and not poller.again and not must:
        return False
    poller._begin_turn()
    poller._run_turn(n)
    return True


def take_changed():
    """The peers with news of the session since the last call, each once, in their order."""
    cdef list news = list(dict.fromkeys(changed))
    changed.clear()
    for peer in news:
        if isinstance(peer, BaseException):
            raise peer
    return news


# --- time

cdef int64_t latest_us = 0


def stop_clock():
    """The clock stands from now on, at a time that no poller has passed."""
    clock.standing_us = max(latest_us, clock_us())


def start_clock():
    global latest_us
    latest_us = max(latest_us, clock.standing_us)
    clock.standing_us = 0


def next_in_ms(Poller poller):
    """Until the poller's next deadline; -1: there is none."""
    return poller.wheel.next_in_ms(clock_us() // 1000)


def move_clock(int64_t ms):
    clock.standing_us = (clock.standing_us // 1000 + ms) * 1000
