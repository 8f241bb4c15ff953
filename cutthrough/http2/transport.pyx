# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Streams of HTTP/2 as transports, and their connection as a carrier of them.

    session ── Socket ── stream ─┐
    session ── Socket ── stream ─┼─ demux ── Socket ── TLS ── kernel
    session ── Socket ── stream ─┘

Towards an origin the same stands upside down: a session writes its request to a stream, and reads
the response from it.

A session reads a request of HTTP/1.1 with `Connection: close` from its stream, and writes an answer
of HTTP/1.1 to it. A half-close ends an answer if it has no length; any other answer is cut then, and
the stream is reset.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcmp
from cutthrough.http2.outgoing cimport write_message
from cutthrough.http2.demux cimport (
    count_down, demux_of, feed, free_demux, make_demux, state_of)
from cutthrough.http2.fingerprint cimport MOST_PRINT, write_print
from cutthrough.http2.frames cimport (
    flush, wake_stuck, submit_end, submit_reset, write_frames)
from cutthrough.http2.nghttp2 cimport (
    NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_FLAG_NONE,
    NGHTTP2_INTERNAL_ERROR, NGHTTP2_NO_ERROR, NGHTTP2_PROTOCOL_ERROR,
    NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, nghttp2_session_check_request_allowed,
    nghttp2_session_consume_stream, nghttp2_session_get_last_proc_stream_id,
    nghttp2_session_get_remote_settings, nghttp2_session_set_stream_user_data,
    nghttp2_session_terminate_session, nghttp2_submit_goaway, nghttp2_submit_shutdown_notice)
from cutthrough.http2.resets cimport code_of_cut, code_of_release, pass_reset
from cutthrough.http2.stream cimport (
    MESSAGE_DONE, MESSAGE_OPEN, DUE, JUST_NOW, OPEN, Demux, Stream, break_stream, count_streams, delist,
    error_of_loss, free_slot, free_stream, give_input, grow_window, make_stream, peek_stream,
    read_stream, stream_of)
from cutthrough.net.buffers cimport COPY_BYTES, Block, give_block, scratch
from cutthrough.net.linux cimport EAGAIN, ECONNRESET, EINVAL
from cutthrough.net.multiplex cimport (
    HEARD_ALL, HEARD_END, HEARD_FAULT, HEARD_LATE, HEARD_NO_ROOM, HEARD_RESET, HEARD_SOME, Bounds,
    Due, Multiplexer, set_multiplexer)
from cutthrough.net.sysio cimport CAN_READ, CAN_WRITE, try_recv, untaken as untaken_by_peer
from cutthrough.net.transport cimport KERNEL, Agreed, Socket, Transport, add_transport, transport_of


# --- a stream


cdef int open_stream(Socket *s, int context, const char *name) noexcept nogil:
    return -EINVAL                      # streams are opened by the peer, or by `ask`


cdef ssize_t receive(Socket *s, void *buf, size_t n) noexcept nogil:
    cdef Stream *st = stream_of(s)
    cdef size_t taken
    cdef ssize_t r = read_stream(st, <char *>buf, n, &taken)
    grow_window(st, taken)
    give_window(st, taken)
    return r


cdef inline void give_window(Stream *st, size_t n) noexcept nogil:
    if n and st.demux != NULL and not st.is_gone:
        nghttp2_session_consume_stream(st.demux.session, st.id, n)
        if not st.demux.held:
            write_frames(st.demux)


cdef ssize_t transmit(Socket *s, const void *a, size_t n, const void *b,
                      size_t m) noexcept nogil:
    return write_message(stream_of(s), <const char *>a, n, <const char *>b, m)


cdef ssize_t look(Socket *s, void *buf, size_t n) noexcept nogil:
    return peek_stream(stream_of(s), <char *>buf, n)


cdef ssize_t skip(Socket *s, size_t n) noexcept nogil:
    cdef size_t taken
    cdef ssize_t r = read_stream(stream_of(s), scratch(), min(n, <size_t>COPY_BYTES), &taken)
    give_window(stream_of(s), taken)
    return r


cdef int64_t untaken(Socket *s) noexcept nogil:
    """Octets in frames count as taken, because they come before a reset."""
    cdef Stream *st = stream_of(s)
    return 0 if st.tail == NULL or st.error else st.tail.end - st.tail.start


cdef bint holds_back(Socket *s) noexcept nogil:
    return False                        # an end that is due outlives the session


cdef void note_events(Socket *s, unsigned int events) noexcept nogil:
    pass


cdef int error_of(const Socket *s) noexcept nogil:
    return stream_of(s).error


cdef void half_close(Socket *s) noexcept nogil:
    cdef Stream *st = stream_of(s)
    if st.demux == NULL or st.error or st.abortive or st.ends or st.message == MESSAGE_DONE:
        return
    if st.message == MESSAGE_OPEN:
        st.message = MESSAGE_DONE
        submit_end(st)
        return
    st.abortive = True
    submit_reset(st.demux, st.id, code_of_cut(st))
    break_stream(st, ECONNRESET)
    write_frames(st.demux)


cdef void set_abortive(Socket *s) noexcept nogil:
    stream_of(s).abortive = True


cdef void release(Socket *s) noexcept nogil:
    cdef Stream *st = stream_of(s)
    cdef Demux *d = st.demux
    free_slot(st)
    st.owner = NULL
    st.sock = NULL
    st.released = True
    if d == NULL:
        free_stream(st)
        return
    count_down(d)
    if st.is_gone:
        free_stream(st)
        return
    if st.ended and st.peer_ended or not (
            st.end_out or d.asks or st.abortive or st.error) and (st.ends or st.ended):
        # The library closes it when the last frame is out
        delist(st, DUE)
        give_block(&st.head)
        give_input(st)
        give_block(&st.trailers)
        give_block(&st.sent)
        st.keeps = False
        return
    submit_reset(d, st.id, code_of_release(st))
    nghttp2_session_set_stream_user_data(d.session, st.id, NULL)
    free_stream(st)
    write_frames(d)


cdef void *peer(const Socket *s) noexcept nogil:
    cdef Stream *st = stream_of(s)
    cdef Socket *carrier
    if st.demux == NULL or st.demux.carrier.kind == KERNEL:
        return NULL
    carrier = st.demux.carrier
    return transport_of(carrier).peer(carrier) if transport_of(carrier).peer != NULL else NULL


cdef bint describe(const Socket *s, Agreed *out) noexcept nogil:
    cdef Stream *st = stream_of(s)
    cdef Socket *carrier
    if st.demux == NULL or st.demux.carrier.kind == KERNEL:
        return False
    carrier = st.demux.carrier
    return transport_of(carrier).describe != NULL and transport_of(carrier).describe(carrier, out)


# --- the carrier


cdef bint is_agreed(const Socket *carrier) noexcept nogil:
    cdef Agreed agreed
    return (carrier.kind != KERNEL and transport_of(carrier).describe != NULL
            and transport_of(carrier).describe(carrier, &agreed)
            and agreed.alpn_len == 2 and memcmp(agreed.alpn, b"h2", 2) == 0)


cdef bint begin(Socket *carrier, const Bounds *bounds, int64_t now_us) noexcept nogil:
    cdef Demux *d = make_demux(carrier, bounds, now_us)
    if d == NULL:
        return False
    write_frames(d)                     # SETTINGS: the client need not wait for them
    flush(d)
    return True


cdef int hear(Socket *carrier, int64_t now_us) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    cdef ssize_t n
    cdef int heard
    d.now_us = now_us
    d.held = True
    if d.stuck and carrier.ready & CAN_WRITE:
        d.held = False
        write_frames(d)
        flush(d)
        d.held = True
    if d.wakes_stuck and not d.stuck:
        d.wakes_stuck = False
        wake_stuck(d)
    if d.error:
        return HEARD_RESET
    if d.stuck or not carrier.ready & CAN_READ:
        return HEARD_ALL
    n = try_recv(carrier, scratch(), COPY_BYTES)
    if n == -EAGAIN:
        return HEARD_ALL
    if n < 0:
        d.error = <int>-n               # its streams tell why
    if n <= 0:
        return HEARD_END if n == 0 else HEARD_RESET
    heard = feed(d, scratch(), n)
    if heard != HEARD_ALL:
        return heard
    return HEARD_SOME if carrier.ready & CAN_READ else HEARD_ALL


cdef bint next_due(Socket *carrier, Due *out) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    cdef Stream *st = NULL if d == NULL else d.lists[<int>DUE].first
    if st == NULL:
        return False
    delist(st, DUE)
    out.owner = st.owner
    out.refusal = st.refusal
    out.method = st.method
    if st.owner == NULL:
        out.sock.fd = -1
        out.sock.kind = <unsigned char>row.kind
        out.sock.slot = st.slot
        out.sock.ready = CAN_READ | CAN_WRITE
    return True


cdef char[MOST_PRINT] taken


cdef const char *take_print(Socket *carrier, size_t *n) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    if d == NULL or d.print == NULL:
        return NULL
    n[0] = write_print(taken, d.print)
    free(d.print)
    d.print = NULL
    return taken


cdef bint is_due(const Socket *carrier) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    return d != NULL and d.lists[<int>DUE].first != NULL


cdef bint has_room(const Socket *carrier) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    return d != NULL and not d.over and d.send_error == 0 and (
        d.n_open < nghttp2_session_get_remote_settings(
            d.session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS))


cdef uint32_t most(const Socket *carrier) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    return min(d.most_streams, nghttp2_session_get_remote_settings(
        d.session, NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS))


cdef bint ask(Socket *carrier, Socket *out) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    cdef Stream *st
    if d == NULL or not d.asks or d.over or d.error or d.send_error or (
            d.n_open >= d.most_streams) or (
            d.n_waiting >= d.most_streams       # those that were given up count, too
            or not nghttp2_session_check_request_allowed(d.session)):
        return False
    st = make_stream(d, 0)              # its number comes with the head
    if st == NULL:
        return False
    st.keeps = True
    d.n_open += 1
    d.idle_us = 0
    out.fd = -1
    out.kind = <unsigned char>row.kind
    out.slot = st.slot
    out.ready = CAN_WRITE
    return True


cdef bint is_unread(const Socket *s) noexcept nogil:
    return stream_of(s).unread


cdef Block *give_sent(Socket *s) noexcept nogil:
    cdef Stream *st = stream_of(s)
    cdef Block *sent = st.sent
    st.sent = NULL
    st.keeps = False
    return sent


cdef int64_t taken_before(const Socket *s, int64_t *left) noexcept nogil:
    cdef Stream *st = stream_of(s)
    cdef int64_t n
    n = 0 if st.demux == NULL or st.demux.error else untaken_by_peer(st.demux.carrier)
    if n and st.demux.stuck and st.crowded:     # and not for want of a window
        st.taken_before += max(<int64_t>0, st.untaken_before - n)
        left[0] += n
    st.untaken_before = n
    return st.taken_before


cdef const Socket *carrier_of(const Socket *s) noexcept nogil:
    cdef Stream *st = stream_of(s)
    return NULL if st == NULL or st.demux == NULL else st.demux.carrier


cdef void adopt(Socket *s, void *owner) noexcept nogil:
    cdef Stream *st = stream_of(s)
    st.owner = owner
    st.sock = s


cdef int speak(Socket *carrier) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    d.held = False
    write_frames(d)
    flush(d)
    return state_of(d)


cdef uint32_t count(const Socket *carrier) noexcept nogil:
    return demux_of(carrier).n_open


cdef bint holds(const Socket *carrier) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    return d.out != NULL or d.lists[<int>OPEN].first != NULL


cdef int64_t idle_since_us(const Socket *carrier, int64_t now_us) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    if d.idle_us == JUST_NOW:
        d.idle_us = now_us
    return d.idle_us


cdef int64_t awaits_since_us(const Socket *carrier) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    return d.meter.block_us if d.meter.block_frames or not d.meter.has_frame else 0


cdef void drain(Socket *carrier) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    d.drained += d.drained < 3
    if d.drained == 1:
        nghttp2_submit_shutdown_notice(d.session)
    elif d.drained == 2:
        d.over = True
        nghttp2_submit_goaway(
            d.session, NGHTTP2_FLAG_NONE, nghttp2_session_get_last_proc_stream_id(d.session),
            NGHTTP2_NO_ERROR, NULL, 0)
    write_frames(d)
    flush(d)


cdef void lose(Socket *carrier, int why) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    cdef int error = error_of_loss(d, why)
    cdef Stream *st
    cdef Stream *next
    if d == NULL:                       # it has ended already
        return
    d.held = False
    d.over = True
    if why != HEARD_RESET and why != HEARD_END:
        nghttp2_session_terminate_session(
            d.session, NGHTTP2_NO_ERROR if why in (HEARD_ALL, HEARD_LATE) else NGHTTP2_PROTOCOL_ERROR
            if why == HEARD_FAULT else NGHTTP2_INTERNAL_ERROR if why == HEARD_NO_ROOM
            else NGHTTP2_ENHANCE_YOUR_CALM)
        write_frames(d)
    if why != HEARD_RESET:
        flush(d)                        # answers of this batch, too
    st = d.lists[<int>OPEN].first
    while st != NULL:
        next = st.links[<int>OPEN].next
        if st.owner != NULL:
            break_stream(st, error)
        elif not st.released:           # no session has it
            count_down(d)
            nghttp2_session_set_stream_user_data(d.session, st.id, NULL)
            free_stream(st)
        st = next


cdef void end(Socket *carrier) noexcept nogil:
    cdef Demux *d = demux_of(carrier)
    if d != NULL:
        free_demux(d)


def count_open():
    """Streams of this process."""
    return count_streams()


cdef Transport functions
functions.open = open_stream
functions.recv = receive
functions.send = transmit
functions.peek = look
functions.skip = skip
functions.untaken = untaken
functions.holds_back = holds_back
functions.note_events = note_events
functions.error = error_of
functions.half_close = half_close
functions.set_abortive = set_abortive
functions.peer = peer
functions.describe = describe
functions.release = release

cdef Multiplexer row
row.kind = add_transport(&functions)
row.is_agreed = is_agreed
row.begin = begin
row.hear = hear
row.next_due = next_due
row.take_print = take_print
row.is_due = is_due
row.has_room = has_room
row.most = most
row.ask = ask
row.is_unread = is_unread
row.pass_reset = pass_reset
row.give_sent = give_sent
row.taken_before = taken_before
row.carrier_of = carrier_of
row.adopt = adopt
row.speak = speak
row.count = count
row.holds = holds
row.idle_since_us = idle_since_us
row.awaits_since_us = awaits_since_us
row.drain = drain
row.lose = lose
row.end = end
set_multiplexer(&row)
