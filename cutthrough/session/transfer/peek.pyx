# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A tunnel's first bytes are looked at before any byte moves, and stay where they are.

    DIAL ─> 200 ─> PEEK ─> TUNNEL        only if a rule, the log or a metric asks for them
                    └────> LINGER        a rule refuses them

The origin is connected by then, and has been sent nothing. The client's bytes are read with
MSG_PEEK, so that relay and splice do not notice; bytes that came with the CONNECT are in `input`
already. If the origin speaks first, as servers of SSH and SMTP may, its
bytes decide: no tunnel waits for a client that waits for its origin.

So a tunnel is held up until the first bytes of either side, which have nowhere to go before
that. Only a ClientHello in parts is held up longer, until it is whole (R53), and an origin can
do nothing with a part of it. The deadline is head_timeout, which no byte extends. If a rule
depends on the bytes, the tunnel then ends; else it goes on with the known ones.

If the rule has TLS intercepted, the tunnel becomes a connection with requests: see intercept. If
the client is known to reject our certificate there, and the rule allows it, the tunnel begins: see
pinned.
"""

from libc.string cimport memcpy
from cutthrough.net cimport linux
from cutthrough.net.buffers cimport bytes_of, scratch
from cutthrough.net.relay cimport is_holding, run_pump
from cutthrough.net.sysio cimport (
    BROKEN, CAN_READ, PEER_DONE, can_peek, take_error, try_peek, try_recv)
from cutthrough.outcome cimport (
    DESTINATION_DENIED, OK, OVERLOADED, PEEK_TIMEOUT, PROTOCOL_DENIED, RECORDING_MISSED)
from cutthrough.policy.acl cimport REPLAYS
from cutthrough.policy.first_bytes cimport (
    ONLY_HTTP_IS_INTERCEPTED, TLS_IS_INTERCEPTED, TLS_IS_REFUSED, TLS_PASSES)
from cutthrough.session.judge.authorize cimport judge_opening, judge_server_name
from cutthrough.session.judge.under_way cimport is_cut_meanwhile
from cutthrough.session.model.broken cimport outcome_of_break, outcome_of_client
from cutthrough.session.model.charge cimport admit_again
from cutthrough.session.model.client cimport Client, extras_of
from cutthrough.session.model.flight_recorder cimport E_PEEKED, note
from cutthrough.session.model.pinned cimport is_pinned
from cutthrough.session.model.recording_mode cimport is_played_inside, recording_of
from cutthrough.session.model.state cimport TUNNEL
from cutthrough.session.transfer.alerts cimport ACCESS_DENIED, DECODE_ERROR, NO_ALERT, refuse_opening
from cutthrough.session.transfer.delivery cimport TO_CLIENT, deliver
from cutthrough.session.transfer.intercept cimport begin_interception
from cutthrough.session.transfer.origin_alerts cimport outcome_of_origin
from cutthrough.session.transfer.tunnel cimport begin_relay
from cutthrough.wire.clienthello cimport MOST_HELLO, ClientHello
from cutthrough.wire.offers cimport offer_of
from cutthrough.wire.openings cimport (
    SILENT, TLS, UNDECIDED, UNKNOWN, WITH_JA4, Protocol, make_opening, read_client_opening,
    read_origin_opening)

cdef enum:
    TLS_HANDSHAKE = 22
    MOST_GREETING = 1024        # bytes looked at of an origin that speaks first
    NO_ROOM = -10000            # in place of an errno

cdef ClientHello hello          # used within one call of peek


cdef int peek(Client c) except -1:
    cdef Protocol protocol = UNDECIDED
    cdef char *data = scratch()
    cdef bint ended = False, origin_ended = False
    cdef int error = 0
    cdef ssize_t n
    if is_holding(&c.relay.down) and not push_reply(c):
        return c.abort(outcome_of_break(c), True)
    n = look_at_client(c, data, &ended)
    if n == NO_ROOM:
        return c.abort(OVERLOADED, True)
    if n < 0:
        return c.abort(outcome_of_client(<int>-n), True)
    if n:
        protocol = read_client_opening(&hello, data, n)
    if protocol == UNDECIDED and (n == 0 or data[0] != TLS_HANDSHAKE):
        protocol = look_at_origin(c, data + MOST_HELLO, &origin_ended, &error)
    if protocol == UNDECIDED and ended:
        protocol = UNKNOWN if n else SILENT
    if protocol == UNDECIDED and origin_ended:
        if c.request.needs_opening:     # later bytes would not be judged
            if error == 0 and c.origin.sock.ready & BROKEN:
                error = take_error(&c.origin.sock) or linux.ECONNRESET
            return c.abort(outcome_of_origin(c, error) if error else OK, error != 0)
        protocol = UNKNOWN if n else SILENT
    if protocol == UNDECIDED:
        return 0                        # an event reports more bytes, or the deadline comes
    if not judge_tunnel(c, protocol, begins_tls(data, n)):
        return 0
    # The kernel reports a reset once, and the look has met it
    return deliver(c, outcome_of_origin(c, error), TO_CLIENT) if error else begin_relay(c)


cdef int end_peek(Client c) except -1:
    if c.request.needs_opening:
        return c.refuse(PEEK_TIMEOUT)
    if not judge_tunnel(
            c, UNKNOWN if c.input != NULL or c.sock.ready & CAN_READ else SILENT, False):
        return 0
    return begin_relay(c)


cdef ssize_t look_at_client(Client c, char *data, bint *ended) noexcept:
    """Copies the client's first bytes to `data`. Returns how many, -errno, or NO_ROOM."""
    cdef size_t n = 0
    cdef ssize_t count
    if c.input != NULL:
        n = min(c.input.end - c.input.start, <size_t>MOST_HELLO)
        memcpy(data, bytes_of(c.input) + c.input.start, n)
    if n == MOST_HELLO or not c.sock.ready & CAN_READ:
        return n
    if can_peek(&c.sock):
        count = try_peek(&c.sock, data + n, MOST_HELLO - n)
        ended[0] = c.sock.ready & (PEER_DONE | BROKEN)      # nothing comes behind these
    else:
        count = try_recv(&c.sock, data + n, MOST_HELLO - n)
        if count > 0 and not c.keep_input(data + n, count):
            return NO_ROOM
    if count == 0:
        ended[0] = True
    if count == -linux.EAGAIN:
        return n
    return count if count < 0 else <ssize_t>(n + count)


cdef Protocol look_at_origin(Client c, char *data, bint *ended, int *error) noexcept:
    cdef ssize_t n
    if not c.origin.sock.ready & CAN_READ:
        return UNDECIDED
    if not can_peek(&c.origin.sock):
        return UNKNOWN
    n = try_peek(&c.origin.sock, data, MOST_GREETING)
    if n == -linux.EAGAIN:
        return UNDECIDED
    error[0] = <int>-n if n < 0 else 0
    ended[0] = n <= 0 or c.origin.sock.ready & (PEER_DONE | BROKEN)
    return read_origin_opening(data, n) if n > 0 else UNDECIDED


cdef bint push_reply(Client c) noexcept:
    """Sends the rest of the 200. The pump reads nothing meanwhile."""
    c.relay.down.left = 0
    run_pump(&c.relay.down)
    c.relay.down.left = -1
    c.relay.down.moved = 0              # counts relayed bytes only
    return not c.sock.ready & BROKEN


cdef bint passes_by_hook(Client c) noexcept:
    """The operator's function has said so. What is replayed has no origin to pass to (R60)."""
    return c.extras.decision is not None and bool(c.extras.decision.tls) and not (
        c.request.stands_in or recording_of(c) == REPLAYS)


cdef bint begins_tls(const char *data, size_t n) noexcept:
    """A record of SSL 3 or TLS; or the ClientHello of SSL 2 (RFC 5246 appendix E.2), which OpenSSL's
    and BoringSSL's servers still read, and answer by TLS 1.2."""
    if n < 2 or not data[0] & 0x80:
        return n > 1 and data[0] == TLS_HANDSHAKE and data[1] == 3
    return n > 3 and data[2] == 1 and data[3] == 3


cdef bint refuses_unread(Client c) noexcept:
    """Whether the rule opens or refuses TLS, also of a ClientHello that was not read: it is longer than
    MOST_HELLO, or the origin may be more lenient than we are."""
    cdef int fate = c.snapshot.acl.tls_of(c.request.rule)
    return fate == TLS_IS_REFUSED or (fate != TLS_PASSES and not passes_by_hook(c))


cdef bint judge_tunnel(Client c, Protocol protocol, bint is_handshake) except -1:
    """False: it is no tunnel: it has ended, or is intercepted. `is_handshake`: the client's first
    bytes begin one of TLS, so that it reads an alert even if the rest is no ClientHello."""
    cdef bint judged = c.request.needs_opening
    cdef bint opens
    cdef int fate = 0
    cdef int outcome
    # If rules judge the tunnel, a later policy may want the JA4 of the remembered bytes
    extras_of(c).opening = make_opening(
        protocol, &hello, c.context.options.peeks | (WITH_JA4 if judged else 0))
    c.context.counters.protocols[<int>protocol] += 1
    note(c.context.recorder, <void *>c, c.poller.now_us, E_PEEKED, protocol, 0)
    outcome = judge_opening(c) if judged else OK
    if outcome == OK and is_cut_meanwhile(c):
        outcome = DESTINATION_DENIED
    if outcome == OK and judged:
        outcome = admit_again(c)
    if judged and protocol == TLS:
        fate = c.snapshot.acl.tls_of(c.request.rule)
    elif outcome == OK and judged and is_handshake and refuses_unread(c):
        outcome = PROTOCOL_DENIED
    opens = (fate == TLS_IS_INTERCEPTED or fate == ONLY_HTTP_IS_INTERCEPTED) and (
        not passes_by_hook(c))
    if outcome == OK and opens:
        outcome = judge_server_name(c)
    if outcome == OK and (c.request.stands_in or recording_of(c) == REPLAYS) and not (
            is_played_inside(c, fate)):
        outcome = RECORDING_MISSED
    if outcome != OK:
        refuse_opening(c, outcome, ACCESS_DENIED if protocol == TLS else
                       DECODE_ERROR if is_handshake else NO_ALERT)
        return False
    if opens:
        c.request.pinned = is_pinned(c) and not c.request.stands_in
        if not c.request.pinned:
            begin_interception(c, fate == ONLY_HTTP_IS_INTERCEPTED,
                               offer_of(&hello) if c.context.options.passes_offers else None)
            return False
        c.context.counters.pinned += 1
    c._set_state(TUNNEL)
    return True
