# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A connection whose bytes are streams: each stream is a session of its own.

    accept ─> TLS ─> STREAMS ─> (LINGER) ─> CLOSED            the carrier
                        └─ a stream ─> HEAD ─> … ─> CLOSED    its sessions

The carrier has no request of its own. It is logged only if its client's fault ends it. A session
of a stream has the carrier's address, listener and certificate, and one request; its code is that
of all sessions. Each counts as a connection in every limit (R62).

A turn reads the carrier, then gives each due session its turn, then writes all answers.

The deadline of a carrier without streams is `keepalive_timeout`, as between two requests; that of
its first frame, and of a header block that has begun, is `head_timeout`. No frame extends them.
"""

from libc.stdint cimport int64_t
from libc.string cimport memset
from cutthrough.net.multiplex cimport (
    HEARD_ALL, HEARD_END, HEARD_FAULT, HEARD_FLOOD, HEARD_HEADERS, HEARD_NO_ROOM, HEARD_RESET,
    HEARD_RESETS, HEARD_SOME, REFUSED_EXTENDED, REFUSED_INVALID, REFUSED_MALFORMED,
    REFUSED_NOT, REFUSED_TOO_LARGE, Bounds, Due, Multiplexer, multiplexer)
from cutthrough.net.poller cimport Endpoint
from cutthrough.net.sysio cimport untaken
from cutthrough.outcome cimport (
    BAD_HTTP2, BAD_REQUEST, BAD_STREAM, HEAD_TIMEOUT, HEAD_TOO_LARGE, HTTP2_FLOOD, HTTP2_HEADERS,
    HTTP2_RESETS, KEEPALIVE_TIMEOUT, OK, OVERLOADED, UNSUPPORTED_PROTOCOL)
from cutthrough.session.judge.admit cimport admit, turn_away
from cutthrough.session.model.client cimport (
    Client, is_certified_before, leave_place, link, rest, set_tlvs)
from cutthrough.session.model.prints cimport P_HTTP2
from cutthrough.session.model.state cimport HEAD, STREAMS

cdef enum:
    TURNS = 4                   # reads of one turn, 64 KiB each


cdef bint carries_streams(Client c) noexcept:
    return multiplexer() != NULL and multiplexer().is_agreed(&c.sock)


cdef int begin_streams(Client c) except -1:
    cdef bint has_print = c.entrance.prints is not None and c.context.options.prints & P_HTTP2
    cdef Bounds bounds = Bounds(
        c.context.options.http2_streams, c.context.options.request_limits.head_bytes, False, has_print)
    if not multiplexer().begin(&c.sock, &bounds, c.poller.now_us):
        return c.abort(OVERLOADED, True)
    memset(&c.stamps, 0, sizeof(c.stamps))  # of the handshake
    c._set_state(STREAMS)
    return run_streams(c)


cdef int run_streams(Client c) except -1:
    cdef const Multiplexer *m = multiplexer()
    cdef int heard = HEARD_SOME
    cdef int turn = 0
    cdef int state
    while heard == HEARD_SOME and turn < TURNS:
        turn += 1
        heard = m.hear(&c.sock, c.poller.now_us)
        serve(c, m)
    state = m.speak(&c.sock)
    serve(c, m)                             # streams that speaking has ended
    if heard > HEARD_SOME:
        return end_streams(c, m, heard)
    if state != HEARD_ALL and not (state == HEARD_END and is_draining_out(c)):
        # An end that both sides have said: the client may still send for the last answers
        return end_streams(c, m, HEARD_ALL if state == HEARD_END else state)
    if heard == HEARD_SOME:
        c.poller.call_again(c)
    if m.count(&c.sock):
        leave_place(c)
    else:
        rest(c)
    return set_deadline(c, m)


cdef int serve(Client c, const Multiplexer *m) except -1:
    cdef Due due
    cdef Endpoint stream
    while m.next_due(&c.sock, &due):
        if due.owner == NULL:
            begin_stream(c, m, &due)
            continue
        stream = <Endpoint>due.owner        # a session, or the bridge of one
        if stream.is_open:
            try:
                stream.on_ready()
            except BaseException:           # the stream's own (R34)
                c.poller.contain(stream)
        if isinstance(stream, Client):
            c.known |= (<Client>stream).known
    return 0


cdef int begin_stream(Client c, const Multiplexer *m, Due *due) except -1:
    cdef Client stream = type(c).__new__(type(c))
    cdef const char *text
    cdef size_t n
    cdef int outcome
    if c.entrance.prints is not None and c.entrance.prints.http2 is None:
        text = m.take_print(&c.sock, &n)    # all of it came before this stream, the first
        if text != NULL:
            c.entrance.prints.http2 = text[:n]
    stream.sock = due.sock
    inherit(stream, c)
    c.poller.add(stream)
    m.adopt(&stream.sock, <void *>stream)   # from here on the set keeps it alive
    link(c.context, stream)
    try:
        if c.context.observer is not None:
            c.context.observer.on_stream(stream, c)
        outcome = admit(stream)
        if outcome != OK:
            turn_away(stream, outcome)
        elif due.refusal == REFUSED_NOT:
            stream.extend()
            stream.on_ready()
        else:
            stream.begin()
            stream.request.method = <unsigned char>due.method
            if due.refusal == REFUSED_MALFORMED:
                stream.abort(BAD_STREAM, False)
            else:
                stream.refuse(outcome_of_refusal(due.refusal))
    except BaseException:
        c.poller.contain(stream)
    c.known |= stream.known
    return 0


cdef int outcome_of_refusal(int refusal) noexcept nogil:
    if refusal == REFUSED_TOO_LARGE:
        return HEAD_TOO_LARGE
    if refusal == REFUSED_INVALID:
        return BAD_REQUEST
    return UNSUPPORTED_PROTOCOL if refusal == REFUSED_EXTENDED else OVERLOADED


cdef int inherit(Client stream, Client carrier) except -1:
    """Gives a stream the facts of its carrier that a request needs."""
    stream.context = carrier.context
    stream.pac = carrier.pac
    stream.entrance = carrier.entrance
    stream.address = carrier.address
    stream.sender = carrier.sender
    stream.checks = carrier.checks
    set_tlvs(stream, carrier.extras.tlvs)
    stream.since_ms = carrier.poller.time_ms()
    if carrier.entrance.is_inside:          # its CONNECT has authenticated
        stream.known = carrier.known
    return 0


# --- the end


cdef int set_deadline(Client c, const Multiplexer *m) except -1:
    return c.poller.arm(c, deadline_of(c, m))


cdef int64_t deadline_of(Client c, const Multiplexer *m) noexcept:
    cdef int64_t now_us = c.poller.now_us
    cdef int64_t idle_us = m.idle_since_us(&c.sock, now_us)
    cdef int64_t begun_us = m.awaits_since_us(&c.sock)
    cdef int64_t timeout_ms = c.context.options.timeout_ms[<int>STREAMS]
    cdef int64_t deadline_ms
    if not c.known:                         # a stranger, as in Client.extend
        timeout_ms = min(timeout_ms, c.context.options.timeout_ms[<int>HEAD])
    deadline_ms = (idle_us if idle_us else now_us) // 1000 + timeout_ms
    if begun_us:
        deadline_ms = min(deadline_ms, begun_us // 1000 + c.context.options.timeout_ms[<int>HEAD])
    return deadline_ms


cdef bint is_draining_out(Client c) noexcept:
    """Whether a drain waits for the last answers: a close would discard them if the client
    credited them later. The drain looks again, and has a bound."""
    return takes_no_more(c) and untaken(&c.sock) > 0


cdef bint takes_no_more(Client c) noexcept:
    return c.context.draining or is_certified_before(c)


cdef int close_idle_streams(Client c) except -1:
    cdef const Multiplexer *m = multiplexer()
    cdef int64_t now_ms = c.poller.time_ms()
    cdef int64_t begun_us = m.awaits_since_us(&c.sock)
    if begun_us and now_ms >= begun_us // 1000 + c.context.options.timeout_ms[<int>HEAD]:
        c.begin()
        c.log_end(HEAD_TIMEOUT)
        c._clear_request()
        return end_streams(c, m, HEARD_ALL) or 1
    if takes_no_more(c):
        m.drain(&c.sock)
    if m.count(&c.sock) == 0 and (now_ms >= deadline_of(c, m) or (
            takes_no_more(c) and not (m.holds(&c.sock) or is_draining_out(c)))):
        c.context.counters.outcomes[<int>KEEPALIVE_TIMEOUT] += 1
        return end_streams(c, m, HEARD_ALL) or 1
    return set_deadline(c, m) or 1


cdef int end_streams(Client c, const Multiplexer *m, int why) except -1:
    """The connection ends, for a reason of its own: see Heard."""
    cdef int outcome = outcome_of(why)
    m.lose(&c.sock, why)
    serve(c, m)
    m.end(&c.sock)
    if why == HEARD_END or why == HEARD_RESET:
        return c.close()
    if outcome != OK:
        c.begin()
        c.log_end(outcome)
        c._clear_request()
    return c.linger(False)                  # or a reset would overtake the reason


cdef int outcome_of(int why) noexcept nogil:
    if why == HEARD_FAULT:
        return BAD_HTTP2
    if why == HEARD_RESETS:
        return HTTP2_RESETS
    if why == HEARD_FLOOD:
        return HTTP2_FLOOD
    if why == HEARD_HEADERS:
        return HTTP2_HEADERS
    return OVERLOADED if why == HEARD_NO_ROOM else OK


cdef int lose_streams(Client c) except -1:
    cdef const Multiplexer *m = multiplexer()
    m.lose(&c.sock, HEARD_ALL)
    try:
        serve(c, m)
    finally:
        m.end(&c.sock)
    return 0
