# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A tunnel: two sockets, and bytes that are never read here.

If the first bytes are to be looked at, the tunnel is in PEEK before: see peek.

After CONNECT's 200 or a 101 only `net.relay` sees the bytes. This file decides on each end
of the relay. One side's end of stream is passed on and the other side goes on, within
HALF_CLOSED's deadline. A reset is passed on as a reset, because a cut stream must not look
like one that ended, but not before the bytes that had come from that side: see delivery.

One reset is not passed on: an origin's that has ended its stream and takes no more. The
stream is whole, and may still be on its way to a slow client; a reset would take it from the
client's socket. So the bytes before the end go out first (RFC 9110 section 9.3.6), and the
client's bytes meanwhile, updates of a window perhaps, are discarded.

An origin's FIN without close_notify ends an intercepted tunnel as one that is not opened: the
client gets a FIN without close_notify, and judges by itself if that is a whole stream.
"""

from libc.stdint cimport UINT16_MAX, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr, memcpy
from cutthrough.net.buffers cimport OF_RELAYS, Block, bytes_of, give_block, take_block
from cutthrough.net.deferred cimport settle
from cutthrough.net.linux cimport ECONNRESET
from cutthrough.net.pump cimport block_of
from cutthrough.net.relay cimport (
    BY_EVENT, BY_ROOM, BY_TURN, RELAY_CLOSED, RELAY_DOWN_SINK_FAILED, RELAY_DOWN_SOURCE_FAILED,
    RELAY_HALF_CLOSED, RELAY_NO_ROOM, RELAY_UP_SOURCE_FAILED, Relay, Relayed, Resumed, feed, lose,
    push, run_relay, start_pump)
from cutthrough.net.sysio cimport (
    BROKEN, CAN_READ, PEER_DONE, take_error, untaken)
from cutthrough.net.transport cimport KERNEL, TLS, UNFINISHED
from cutthrough.outcome cimport CLIENT_RESET, OK, OVERLOADED
from cutthrough.policy.hop cimport HOP_LOCAL
from cutthrough.session.model.broken cimport outcome_of_break, outcome_of_client
from cutthrough.session.model.charge cimport after_turn, before_turn, outcome_of_meter
from cutthrough.session.model.client cimport Client, leave_place, own_opening
from cutthrough.session.model.flight_recorder cimport E_DOWN, E_UP, note
from cutthrough.session.model.inside cimport is_intercepted
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.state cimport HALF_CLOSED, PEEK, TUNNEL
from cutthrough.session.transfer.delivery cimport TO_CLIENT, TO_ORIGIN, deliver
from cutthrough.session.transfer.messages cimport give_messages, has_messages, run_messages
from cutthrough.session.transfer.origin_alerts cimport outcome_of_origin

cdef enum:
    # Octets with which an origin says good-bye: an alert of TLS 1.2 in CBC has 85, a GOAWAY with
    # its reason some more
    MOST_PARTING = 512


cdef int start_tunnel(Client c, const char *reply, size_t n) except -1:
    cdef Relay *relay = &c.relay
    cdef Block *rest
    cdef bint sent = True
    settle(&relay.down)
    rest = block_of(&relay.down)            # of a 101 head that was not taken whole
    c.request.is_tunnel = True
    c.count_moved()                         # bytes of the request that a 101 answered
    c.counted_up = c.counted_down = 0
    relay.up.may_splice = relay.down.may_splice = c.context.options.splice
    start_pump(&relay.up, &c.sock, &c.origin.sock, -1)
    start_pump(&relay.down, &c.origin.sock, &c.sock, -1)
    relay.down.held.block = rest
    relay.up.shut = relay.down.shut = False
    c.up_open = False
    leave_place(c)                         # a tunnel is never closed to make room
    c._set_state(PEEK if (c.context.options.peeks | c.request.needs_opening) and own_opening(c) == NULL
                 and not c.request.has_upgrade else TUNNEL)
    if n:
        c.request.status = 200
        sent = push(&relay.down, reply, n, NULL, 0)
        relay.down.moved = 0                # counts relayed bytes only
    if not sent:
        return c.abort(outcome_of_break(c) if relay.down.error else OVERLOADED, True)
    if c.state != PEEK:
        return begin_relay(c)
    # Bytes that are here already cause no event; else an event begins the look, and a turn of the
    # loop is saved, 2 us
    if c.input != NULL or (c.sock.ready | c.origin.sock.ready) & (
            CAN_READ | PEER_DONE | BROKEN):
        return c.poller.call_again(c)
    return 0


cdef int begin_relay(Client c) except -1:
    cdef Block *ahead = c.input
    cdef bint sent
    if ahead != NULL:
        c.input = NULL
        if has_messages(c):
            give_messages(c, True, bytes_of(ahead) + ahead.start, ahead.end - ahead.start)
            sent = True
        else:
            sent = feed(&c.relay.up, NULL, 0, bytes_of(ahead) + ahead.start,
                        ahead.end - ahead.start) >= 0
        give_block(&ahead)
        if not sent:
            return c.abort(outcome_of_origin(c, c.relay.up.error), True)
    c.extras.passage = None
    shorten_head(c)
    return run_tunnel(c)


cdef void shorten_head(Client c) noexcept:
    """Shortens the head of a tunnel at rest, which owns no memory but its object; an upgrade keeps its
    method and path for the log, and for rules that a reload brings."""
    cdef Request *r = &c.request
    cdef Block *copy = NULL
    cdef const char *head
    cdef size_t n
    if r.path_len:
        head = bytes_of(c.head)
        n = <const char *>memchr(head, b" ", c.head.end) - head + 1
        copy = take_block(n + r.path_len, OF_RELAYS)
        if copy != NULL:
            memcpy(bytes_of(copy), head, n)
            memcpy(bytes_of(copy) + n, head + r.path_at, r.path_len)
            copy.end = <uint32_t>(n + r.path_len)
            r.path_at = <uint16_t>n
        else:
            r.path_len = 0
    give_block(&c.head)
    c.head = copy


cdef int run_tunnel(Client c) except -1:
    cdef uint64_t up = c.relay.up.moved
    cdef uint64_t down = c.relay.down.moved
    cdef Resumed resumed
    cdef bint client_ended = c.relay.up.shut
    cdef Relayed how
    cdef int error
    if has_messages(c):
        return run_messages(c)
    if c.usage.meter != NULL and not before_turn(c):
        return c.cut_short(outcome_of_meter(c))
    how = run_relay(&c.relay, &resumed)
    c.count_moved()
    if c.usage.meter != NULL:
        after_turn(c)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_UP, 0, c.relay.up.moved - up)
    note(c.context.recorder, <void *>c, c.poller.now_us, E_DOWN, 0, c.relay.down.moved - down)
    if client_ended:
        c.request.parting = <uint16_t>min(<uint64_t>UINT16_MAX, (
            c.request.parting + c.relay.down.moved - down))
    if resumed == BY_TURN:
        c.poller.call_again(c)
    elif resumed == BY_ROOM:
        c.poller.call_when_room(c)
    if how == RELAY_CLOSED:
        c.log_end(c.request.ending if c.relay.up.sink != NULL else
                  outcome_of_origin(c, c.relay.up.error))
        return c.close()
    if how <= RELAY_HALF_CLOSED and resumed == BY_EVENT:
        # A reset that neither pump meets: one is stuck or done, the other has nothing to do.
        # HUP without a reset means only that both ends were shut, or on a unix socket that
        # the client has closed: its stream is complete, as after a FIN.
        if c.sock.ready & BROKEN and not c.relay.down.shut:
            error = take_error(&c.sock)
            if error or c.sock.kind != KERNEL:
                return end_reset(c, error or ECONNRESET)
        # A local origin hangs up when it closes: only a send finds out what that means
        if c.origin.sock.ready & BROKEN and c.relay.down.shut and not c.relay.up.shut and (
                c.request.hop.kind != HOP_LOCAL):
            c.relay.up.error = <uint8_t>(take_error(&c.origin.sock) or ECONNRESET)
            if untaken(&c.sock) == 0:       # the client has the whole stream and its end
                c.log_end(outcome_of_origin(c, c.relay.up.error))
                return c.close()
            if c.relay.up.sink != NULL:
                lose(&c.relay.up)
    if how == RELAY_HALF_CLOSED and c.state == TUNNEL:
        return c._set_state(HALF_CLOSED)
    if how <= RELAY_HALF_CLOSED:
        if c.relay.up.moved != up or c.relay.down.moved != down:
            return c.extend()
        return 0
    if how == RELAY_NO_ROOM:
        return c.cut_short(OVERLOADED)
    if how == RELAY_UP_SOURCE_FAILED or how == RELAY_DOWN_SINK_FAILED:
        return end_reset(c, c.relay.up.error if how == RELAY_UP_SOURCE_FAILED else (
            c.relay.down.error))
    if how == RELAY_DOWN_SOURCE_FAILED and c.relay.down.error == UNFINISHED and (
            c.sock.kind == TLS and is_intercepted(c)):
        return deliver(c, OK, TO_CLIENT)    # ends at the client's as it did here
    error = c.relay.down.error if how == RELAY_DOWN_SOURCE_FAILED else c.relay.up.error
    return deliver(c, outcome_of_origin(c, error or ECONNRESET), TO_CLIENT)


cdef int end_reset(Client c, int error) except -1:
    """The client has reset the tunnel, or is gone. If it had ended its stream before, it was closed,
    and its kernel rejects the origin's last message: a close_notify, a GOAWAY. If the origin has said
    nothing, the client itself gives up."""
    cdef int outcome = outcome_of_client(error)
    if outcome == CLIENT_RESET and c.relay.up.shut and 0 < c.request.parting <= MOST_PARTING:
        c.log_end(OK)
        return c.close()
    return deliver(c, outcome, TO_ORIGIN)
