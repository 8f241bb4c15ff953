# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The begin of connections, and the end of all of them together."""

from typing import NamedTuple
from zlib import crc32

from libc.stdint cimport int64_t, uint8_t, uint16_t
from cutthrough.net cimport linux
from cutthrough.net.address cimport Address, from_unix
from cutthrough.net.bridge import close_bridges
from cutthrough.net.sysio cimport CAN_WRITE, sys_close
from cutthrough.net.transport cimport KERNEL, TLS, open_transport
from cutthrough.outcome cimport OK
from cutthrough.outcome import NAMES as OUTCOMES
from cutthrough.session.connection cimport Connection
from cutthrough.session.judge.admit cimport admit, turn_away
from cutthrough.session.model.client cimport Client, is_between_requests, link, rest
from cutthrough.session.model.context cimport Context
from cutthrough.session.model.counters cimport N_LISTENERS, count_accept
from cutthrough.session.model.entrance cimport Entrance
from cutthrough.session.model.flight_recorder cimport E_ACCEPTED, note
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.model.shed cimport shed_for_descriptors
from cutthrough.session.model.stage cimport (
    STAGE_PROXY, STAGE_SOCKS, STAGE_TLS, STAGE_TLS_IF_BEGUN, STAGE_TRANSPARENT)
from cutthrough.session.model.state cimport LINGER
from cutthrough.session.stages.runner cimport begin_stages

cdef enum:
    # Connections closed at a time when no descriptor is left
    MOST_SHED = 64
    DESCRIPTORS_OF_A_CLIENT = 2


class SocketFacts(NamedTuple):
    """The facts of a listening socket for its clients. `path`: of a unix socket, its address in text.
    `proxy_protocol`: each connection begins with a header that names its client. `keeps_syn`: it has
    TCP_SAVE_SYN: each connection has a fingerprint."""

    path: str = ""
    proxy_protocol: bool = False
    keeps_syn: bool = False


cdef class ConnectionSink(Sink):
    """Makes a Connection of each accepted socket."""

    def __init__(self, Context context, int listener, *, facts=SocketFacts(), int pac=0,
                 bint plain_too=False, Entrance entrance=None):
        """`listener`: its number in the context's page. `pac`: its place in Context.pacs, plus
        1; 0: it serves no such file. `plain_too`: after `set_tls`, a connection's first byte
        decides if it is TLS. `entrance`: what is served; None: HTTP, with credentials."""
        if not 0 <= listener < N_LISTENERS:
            raise ValueError(f"a page has no listener {listener}")
        self.context = context
        self.listener = listener
        self.entrance = entrance or Entrance()
        self.stages = (STAGE_PROXY if facts.proxy_protocol else 0) | (
            STAGE_SOCKS if self.entrance.socks5 or self.entrance.socks4 else 0) | (
            STAGE_TRANSPARENT if self.entrance.transparent else 0)
        self.pac = <uint8_t>pac
        self.is_unix = bool(facts.path)
        self.tag = crc32(facts.path.encode())
        self.plain_too = plain_too
        self.keeps_syn = facts.keeps_syn
        self.set_tls(-1)

    def set_tls(self, int tls):
        """`tls`: number of the TLS context from the next connection on; -1: no TLS."""
        self.tls = tls
        self.stages &= ~(STAGE_TLS | STAGE_TLS_IF_BEGUN)
        self.transport = KERNEL
        if tls < 0:
            return
        self.stages |= STAGE_TLS_IF_BEGUN if self.plain_too else STAGE_TLS
        # TLS begins behind a header, or after a look at the first byte
        if self.stages & STAGE_TLS and not self.stages & STAGE_PROXY:
            self.transport = TLS

    cdef int on_accept(self, int fd, const Address *client) except -1:
        cdef Context context = self.context
        cdef Connection c
        try:
            c = make_connection(self, fd, client)
        except BaseException:               # no memory
            linux.close(fd)
            context.counters.refused += 1
            raise
        if self.transport != KERNEL and open_transport(
                &c.sock, self.transport, self.tls, NULL) < 0:
            sys_close(&c.sock)
            context.counters.refused += 1
            return 0
        try:
            context.poller.add(c)
        except OSError:                     # no memory, or no watch left for this user
            sys_close(&c.sock)
            context.counters.refused += 1
            return 0
        link(context, c)
        if fd > context.idle_pool.last_fd:
            context.idle_pool.give_up(DESCRIPTORS_OF_A_CLIENT)
        try:
            begin_connection(c, self.listener, self.stages)
        except BaseException:               # the connection's own, not the acceptor's (R34)
            context.poller.contain(c)
        return 0

    cdef int shed(self, bint clients_too) except -1:
        return shed_for_descriptors(self.context, MOST_SHED, clients_too)


cdef Connection make_connection(ConnectionSink sink, int fd, const Address *client):
    """The descriptor is the caller's until this returns."""
    cdef Connection c = Connection.__new__(Connection)
    c.sock.fd = fd
    c.sock.ready = CAN_WRITE
    c.sock.slot = <uint16_t>sink.tls
    c.context = sink.context
    c.pac = sink.pac
    c.entrance = sink.entrance
    if sink.keeps_syn:
        c.entrance = sink.entrance.copy()
        c.entrance.prints = Prints.__new__(Prints)
        c.entrance.prints.read_syn(fd)
    c.address = client[0]
    if sink.is_unix:
        from_unix(fd, sink.tag, &c.address)
    c.since_ms = sink.context.poller.time_ms()
    return c


cdef int begin_connection(Connection c, int listener, int stages) except -1:
    cdef Context context = c.context
    cdef int outcome
    count_accept(context.counters, listener)
    note(context.recorder, <void *>c, context.poller.now_us, E_ACCEPTED, 0,
         c.address.port)
    if context.observer is not None:
        context.observer.on_connect(c)
    outcome = begin_stages(c, stages) if stages else admit(c)
    if outcome != OK:
        return turn_away(c, outcome)
    rest(c)
    return c.extend()


def close_idle(Context context, double grace=0.0):
    """Closes the connections that have been between two requests for `grace` seconds.
    Returns how many.

    A client whose next request is on its way sees a reset. Within the grace that request
    arrives, and its response says `close` (nginx: keepalive_min_timeout)."""
    cdef int64_t before_ms = context.poller.time_ms() - <int64_t>(grace * 1000)
    cdef Client client = <Client>context.newest
    cdef Client older
    count = 0
    while client is not None:
        older = client.older
        if is_between_requests(client) and client.since_ms <= before_ms:
            count += client.close_idle()
        client = older
    return count


def close_all(Context context, str label):
    """Ends every connection with this outcome. Returns how many had a request in hand."""
    cdef Client client = <Client>context.newest
    cdef Client older
    cdef int outcome = OUTCOMES[label]
    count = 0
    while client is not None:
        older = client.older
        if is_between_requests(client) or client.state == LINGER:
            client.close()
        else:
            count += 1
            client.refuse(outcome)
            client.close()
        client = older
    close_bridges(context.poller)
    return count
