# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A connection of HTTP/2: libnghttp2 between a carrier's bytes and its streams.

    carrier ─> measure ─> nghttp2 ─> on_header, on_data … ─> stream
    carrier <─ frames

The peer is a client, or an origin, if the carrier `asks`: both roles have the same functions.

Windows bound the octets from a peer: of each stream 64 KiB and more (see `stream`), which open again
when its session reads, and of the connection 16 MiB, as of httpx and OkHttp, which open at once,
because a slow stream must hold its own octets, and no others.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memset
from cutthrough.http2.fingerprint cimport Print, note_pseudo, read_frames
from cutthrough.http2.frames cimport (
    forget_late, wake_stream, wake_stuck, note_end_out, on_send_data, reset, submit_reset,
    stream_in)
from cutthrough.http2.meter cimport (
    CLOSED, PREFACE, is_closed, measure, start_meter, take_refusal)
from cutthrough.http2.nghttp2 cimport *
from cutthrough.http2.stream cimport (
    DUE, JUST_NOW, OPEN, STUCK, Demux, Stream, break_stream, enlist, finish_head,
    finish_response, finish_trailers, free_stream, keep_data, keep_field, make_stream, note_end)
from cutthrough.net.buffers cimport HEAD_ROOM, give_block
from cutthrough.net.linux cimport ECONNRESET, ENOMEM
from cutthrough.net.multiplex cimport (
    HEARD_ALL, HEARD_END, HEARD_FAULT, HEARD_FLOOD, HEARD_NO_ROOM, HEARD_RESET, HEARD_RESETS,
    REFUSED_MALFORMED, STREAM_BROKE_RULES, Bounds)

cdef enum:
    WINDOW = 1 << 24        # of the connection
    FIRST_TABLE = 256
    # PING and SETTINGS that wait for their answer to be sent; the library's default is 1000
    MOST_ANSWERS = 200
    MOST_CONTINUATIONS = 64     # the meter's bound is lower

# Connections by the descriptor of their carrier
cdef Demux **table = NULL
cdef int table_n = 0

cdef nghttp2_session_callbacks *callbacks = NULL
cdef nghttp2_option *option = NULL
cdef nghttp2_option *asking = NULL      # of our side of an origin


cdef Demux *demux_of(const Socket *carrier) noexcept nogil:
    return table[carrier.fd] if 0 <= carrier.fd < table_n else NULL


cdef Demux *make_demux(Socket *carrier, const Bounds *bounds, int64_t now_us) noexcept nogil:
    cdef Demux *d
    if not has_place(carrier.fd):
        return NULL
    d = <Demux *>calloc(1, sizeof(Demux))
    if d == NULL:
        return NULL
    if (nghttp2_session_client_new2(&d.session, callbacks, d, asking) if bounds.asks else
            nghttp2_session_server_new2(&d.session, callbacks, d, option)) != 0:
        free(d)
        return NULL
    d.carrier = carrier
    d.asks = bounds.asks
    d.most_streams = bounds.streams
    d.most_records = bounds.head_bytes
    d.now_us = d.idle_us = now_us
    start_meter(&d.meter, bounds.head_bytes, 0 if bounds.asks else <int>PREFACE, now_us)
    if bounds.has_print:                # without memory there is none
        d.print = <Print *>calloc(1, sizeof(Print))
        if d.print != NULL:
            d.print.preface = PREFACE
    table[carrier.fd] = d
    if (not submit_settings(d, bounds) or nghttp2_session_set_local_window_size(
                d.session, NGHTTP2_FLAG_NONE, 0, WINDOW) != 0):
        free_demux(d)
        return NULL
    return d


cdef bint submit_settings(Demux *d, const Bounds *bounds) noexcept nogil:
    cdef nghttp2_settings_entry settings[4]
    settings[0].settings_id = NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE
    settings[0].value = bounds.head_bytes
    # No tree of priorities, because a peer could rearrange it without end (CVE-2019-9513)
    settings[1].settings_id = NGHTTP2_SETTINGS_NO_RFC7540_PRIORITIES
    settings[1].value = 1
    # An origin may push nothing, because no request of ours has asked for it
    settings[2].settings_id = NGHTTP2_SETTINGS_ENABLE_PUSH
    settings[2].value = 0
    if not bounds.asks:
        settings[2].settings_id = NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS
        settings[2].value = bounds.streams
    # The default, in words: urllib3-future 2.25 takes its own window for one that is not named
    settings[3].settings_id = NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE
    settings[3].value = NGHTTP2_INITIAL_WINDOW_SIZE
    return nghttp2_submit_settings(d.session, NGHTTP2_FLAG_NONE, settings, 4) == 0


cdef bint has_place(int fd) noexcept nogil:
    global table, table_n
    cdef int n = max(<int>FIRST_TABLE, table_n)
    cdef void *more
    if fd < table_n:
        return fd >= 0
    while n <= fd:
        n *= 2
    more = realloc(table, n * sizeof(Demux *))
    if more == NULL:
        return False
    table = <Demux **>more
    memset(table + table_n, 0, (n - table_n) * sizeof(Demux *))
    table_n = n
    return True


cdef void free_demux(Demux *d) noexcept nogil:
    cdef Stream *st = d.lists[<int>OPEN].first
    cdef Stream *next
    while st != NULL:
        next = st.links[<int>OPEN].next
        if st.owner == NULL:
            free_stream(st)
        else:
            st.demux = NULL
            st.listed = 0
            if st.error == 0:
                st.error = ECONNRESET
        st = next
    table[d.carrier.fd] = NULL
    forget_late(d)
    free(d.print)
    nghttp2_session_del(d.session)
    give_block(&d.out)
    free(d)


cdef void count_down(Demux *d) noexcept nogil:
    d.n_open -= 1
    if d.n_open == 0:
        d.idle_us = JUST_NOW


cdef int feed(Demux *d, const char *data, size_t n) noexcept nogil:
    cdef int heard = measure(&d.meter, data, n, d.now_us)
    cdef ssize_t r
    if d.flooded:                           # by resets that the last write sent
        return d.flooded
    if heard != HEARD_ALL:
        return heard
    if d.print != NULL:
        read_frames(d.print, data, n)
    r = nghttp2_session_mem_recv(d.session, <const uint8_t *>data, n)
    if d.meter.is_stray and not d.asks:
        nghttp2_session_terminate_session(d.session, NGHTTP2_STREAM_CLOSED)
    elif d.meter.is_circular and not d.asks:
        # As nghttpd does, because a reset is not allowed of a stream that is idle, as it often is
        nghttp2_session_terminate_session(d.session, NGHTTP2_PROTOCOL_ERROR)
    if r < 0:
        return HEARD_FLOOD if r == NGHTTP2_ERR_FLOODED else (
            HEARD_NO_ROOM if r == NGHTTP2_ERR_NOMEM else HEARD_FAULT)
    return d.flooded if d.flooded else HEARD_ALL


cdef int state_of(Demux *d) noexcept nogil:
    if d.error:
        return HEARD_NO_ROOM if d.error == ENOMEM else HEARD_RESET
    if d.flooded:
        return d.flooded
    if d.out != NULL or nghttp2_session_want_read(d.session):
        return HEARD_ALL
    # Both sides have said that there are no more streams; or the library has found a fault
    return HEARD_END if d.over else HEARD_FAULT


# --- from the peer


cdef int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd,
                        void *user) noexcept nogil:
    """Faults that the library passes over, because it keeps no closed streams (RFC 9113 sections
    5.1, 5.1.1 and 6.3). DATA of such a stream does not come here: see `measure`."""
    cdef Demux *d = <Demux *>user
    if hd.type == NGHTTP2_PRIORITY and hd.stream_id == 0:
        nghttp2_session_terminate_session(session, NGHTTP2_PROTOCOL_ERROR)
    if hd.type != NGHTTP2_HEADERS or d.asks:
        return 0
    if is_closed(&d.meter, hd.stream_id):
        nghttp2_session_terminate_session(session, NGHTTP2_STREAM_CLOSED)
    elif hd.stream_id > d.newest:
        if hd.stream_id > d.newest + 2:
            d.skipped = d.newest
            d.resumed = hd.stream_id
        d.newest = hd.stream_id
    elif d.skipped < hd.stream_id < d.resumed:
        nghttp2_session_terminate_session(session, NGHTTP2_PROTOCOL_ERROR)
    return 0


cdef void note_closed(Demux *d, int32_t id) noexcept nogil:
    """No frame of it can be on its way, because the peer has closed it, or both have ended it."""
    if not d.asks:
        d.meter.closed[d.meter.n_closed % <int>CLOSED] = id
        d.meter.n_closed += 1


cdef int on_begin_headers(nghttp2_session *session, const nghttp2_frame *frame,
                          void *user) noexcept nogil:
    cdef Demux *d = <Demux *>user
    cdef Stream *st = NULL
    if frame.headers.cat != NGHTTP2_HCAT_REQUEST:
        return 0
    # Streams that the peer has reset count as long as they have a session
    if d.n_open < 2 * d.most_streams and d.send_error == 0:
        st = make_stream(d, frame.hd.stream_id)
    if st == NULL:
        return nghttp2_submit_rst_stream(
            session, NGHTTP2_FLAG_NONE, frame.hd.stream_id, NGHTTP2_REFUSED_STREAM)
    nghttp2_session_set_stream_user_data(session, frame.hd.stream_id, st)
    d.n_open += 1
    d.idle_us = 0
    return 0


cdef int on_header(nghttp2_session *session, const nghttp2_frame *frame, const uint8_t *name,
                   size_t n, const uint8_t *value, size_t m, uint8_t flags,
                   void *user) noexcept nogil:
    cdef Demux *d = <Demux *>user
    cdef Stream *st = stream_in(session, frame.hd.stream_id)
    if d.print != NULL and n and name[0] == c':':
        note_pseudo(d.print, frame.hd.stream_id, <const char *>name, n)
    if st == NULL or st.released:
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE if d.asks else 0
    keep_field(st, <const char *>name, n, <const char *>value, m)
    return end_block(st) if d.asks and st.excess > d.most_records else 0


cdef int end_block(Stream *st) noexcept nogil:
    """The library reads each octet of each field of an origin, and one octet can name 4 KiB of them:
    170 ms for a block. When the stream is lost, it reads no more of them."""
    reset(st, NGHTTP2_PROTOCOL_ERROR)
    return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE


cdef int on_invalid_header(nghttp2_session *session, const nghttp2_frame *frame,
                           const uint8_t *name, size_t n, const uint8_t *value, size_t m,
                           uint8_t flags, void *user) noexcept nogil:
    """The library refuses a value with controls, too: an origin's is judged by wire.http2_response."""
    cdef Demux *d = <Demux *>user
    cdef Stream *st = stream_in(session, frame.hd.stream_id)
    if st == NULL:
        return 0
    if d.asks and not st.is_whole:
        return on_header(session, frame, name, n, value, m, flags, user)
    st.malformed = True
    return end_block(st) if d.asks else 0


cdef int on_frame(nghttp2_session *session, const nghttp2_frame *frame,
                  void *user) noexcept nogil:
    cdef Demux *d = <Demux *>user
    cdef Stream *st
    cdef bint ends = frame.hd.flags & NGHTTP2_FLAG_END_STREAM
    if frame.hd.type == NGHTTP2_GOAWAY:
        d.over = True
        lose_waiting(d)
        return 0
    if frame.hd.type == NGHTTP2_SETTINGS or (
            frame.hd.type == NGHTTP2_WINDOW_UPDATE and frame.hd.stream_id == 0):
        wake_stuck(d)
        return 0
    st = stream_in(session, frame.hd.stream_id)
    if frame.hd.type == NGHTTP2_RST_STREAM:
        note_closed(d, frame.hd.stream_id)
        if st != NULL:
            st.reset_code = frame.rst_stream.error_code
        return 0
    if st == NULL or st.released:
        return 0
    if frame.hd.type == NGHTTP2_HEADERS:
        if frame.headers.cat == NGHTTP2_HCAT_REQUEST:
            begin_stream(d, st, ends)
        elif d.asks and not st.is_whole:
            if not finish_response(st, ends):
                reset(st, NGHTTP2_PROTOCOL_ERROR)
                return 0
        elif st.malformed or not (ends or d.asks) or not finish_trailers(st):
            reset(st, NGHTTP2_PROTOCOL_ERROR)
            return 0
        if ends:
            end_stream(st)
    elif frame.hd.type == NGHTTP2_DATA and ends:
        end_stream(st)
    elif frame.hd.type == NGHTTP2_WINDOW_UPDATE and st.listed >> STUCK & 1:
        wake_stream(st)
    return 0


cdef void end_stream(Stream *st) noexcept nogil:
    if st.due_octets > 0:               # fewer than its length (RFC 9113 section 8.1.1)
        reset(st, NGHTTP2_PROTOCOL_ERROR)
    else:
        note_end(st)


cdef void begin_stream(Demux *d, Stream *st, bint ends) noexcept nogil:
    finish_head(st, ends)
    if st.refusal == REFUSED_MALFORMED:
        submit_reset(d, st.id, NGHTTP2_PROTOCOL_ERROR)
    enlist(st, DUE)


cdef int on_invalid_frame(nghttp2_session *session, const nghttp2_frame *frame, int error,
                          void *user) noexcept nogil:
    """The library resets the stream, or ends the connection."""
    cdef Demux *d = <Demux *>user
    cdef Stream *st = stream_in(session, frame.hd.stream_id)
    if st != NULL and not d.asks and not st.is_whole and frame.hd.type == NGHTTP2_HEADERS:
        st.refusal = REFUSED_MALFORMED
        begin_stream(d, st, False)
    return 0


cdef int on_frame_sent(nghttp2_session *session, const nghttp2_frame *frame,
                       void *user) noexcept nogil:
    """A reset of ours that the peer has provoked costs the peer as much as one of its own, because
    the stream is free for the next one, and its request has been begun (CVE-2025-8671)."""
    cdef Demux *d = <Demux *>user
    cdef Stream *st
    cdef uint32_t code
    if d.asks and frame.hd.type == NGHTTP2_HEADERS and (
            frame.headers.cat == NGHTTP2_HCAT_REQUEST):
        d.n_waiting -= 1
        st = stream_in(session, frame.hd.stream_id)
        if st != NULL:
            st.waits = False
            if st.listed >> STUCK & 1:
                wake_stream(st)
    elif frame.hd.type == NGHTTP2_HEADERS and frame.hd.flags & NGHTTP2_FLAG_END_STREAM:
        st = stream_in(session, frame.hd.stream_id)
        if st != NULL:
            note_end_out(st)
    if frame.hd.type != NGHTTP2_RST_STREAM:
        return 0
    code = frame.rst_stream.error_code
    if (code == NGHTTP2_PROTOCOL_ERROR or code == NGHTTP2_REFUSED_STREAM
            or code == NGHTTP2_FLOW_CONTROL_ERROR or code == NGHTTP2_STREAM_CLOSED
            or code == NGHTTP2_FRAME_SIZE_ERROR):
        st = stream_in(session, frame.hd.stream_id)
        if st != NULL and st.owner != NULL:     # the library's own reset: a window, for one
            break_stream(st, STREAM_BROKE_RULES)
        if not take_refusal(&d.meter) and not d.flooded:
            d.flooded = HEARD_RESETS
    return 0


cdef void lose_waiting(Demux *d) noexcept nogil:
    """When the peer takes no more requests, those that the library holds back are not sent."""
    cdef Stream *st = d.lists[<int>OPEN].first
    while st != NULL:
        if st.waits:
            st.unread = True
            break_stream(st, ECONNRESET)
        st = st.links[<int>OPEN].next


cdef int on_frame_not_sent(nghttp2_session *session, const nghttp2_frame *frame, int error,
                           void *user) noexcept nogil:
    """A request that waited: it was given up, or the peer takes no more."""
    cdef Demux *d = <Demux *>user
    if d.asks and frame.hd.type == NGHTTP2_HEADERS and (
            frame.headers.cat == NGHTTP2_HCAT_REQUEST):
        d.n_waiting -= 1
        if d.over:
            lose_waiting(d)
    return 0


cdef int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                 size_t n, void *user) noexcept nogil:
    cdef Stream *st = stream_in(session, id)
    nghttp2_session_consume_connection(session, n)
    if st == NULL or st.released:
        return 0
    if st.due_octets >= 0:
        if st.due_octets < <int64_t>n:  # more than its length
            reset(st, NGHTTP2_PROTOCOL_ERROR)
            return 0
        st.due_octets -= n
    if not keep_data(st, <const char *>data, n):
        reset(st, NGHTTP2_ENHANCE_YOUR_CALM)
    return 0


cdef int on_stream_close(nghttp2_session *session, int32_t id, uint32_t code,
                         void *user) noexcept nogil:
    cdef Demux *d = <Demux *>user
    cdef Stream *st = stream_in(session, id)
    if st == NULL:
        return 0
    if st.ended and st.peer_ended and code == NGHTTP2_NO_ERROR:
        note_closed(d, id)
    st.is_gone = True
    st.unread = code == NGHTTP2_REFUSED_STREAM      # also behind the last stream of a GOAWAY
    if st.owner != NULL:
        if not (st.ended and st.peer_ended):
            break_stream(st, ECONNRESET)
    elif st.released:
        free_stream(st)
    elif st.refusal != REFUSED_MALFORMED:       # reset before a session has it
        count_down(d)
        free_stream(st)
    return 0


cdef void set_common(nghttp2_option *options) noexcept nogil:
    nghttp2_option_set_no_auto_window_update(options, 1)
    nghttp2_option_set_no_closed_streams(options, 1)
    nghttp2_option_set_max_outbound_ack(options, MOST_ANSWERS)
    # The library counts 32 octets more for each field
    nghttp2_option_set_max_send_header_block_length(options, 2 * HEAD_ROOM)
    permit_continuations(options, MOST_CONTINUATIONS)


if nghttp2_session_callbacks_new(&callbacks) != 0 or nghttp2_option_new(&option) != 0 or (
        nghttp2_option_new(&asking) != 0):
    raise MemoryError
nghttp2_session_callbacks_set_on_begin_frame_callback(callbacks, on_begin_frame)
nghttp2_session_callbacks_set_on_begin_headers_callback(callbacks, on_begin_headers)
nghttp2_session_callbacks_set_on_header_callback(callbacks, on_header)
nghttp2_session_callbacks_set_on_invalid_header_callback(callbacks, on_invalid_header)
nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, on_frame)
nghttp2_session_callbacks_set_on_invalid_frame_recv_callback(callbacks, on_invalid_frame)
nghttp2_session_callbacks_set_on_frame_send_callback(callbacks, on_frame_sent)
nghttp2_session_callbacks_set_on_frame_not_send_callback(callbacks, on_frame_not_sent)
nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, on_data)
nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, on_stream_close)
nghttp2_session_callbacks_set_send_data_callback(callbacks, on_send_data)
set_common(option)
set_common(asking)
# Requests are judged by wire.http2_request, because it can answer some that the library would reset
nghttp2_option_set_no_http_messaging(option, 1)
# See next_trimmed in wire.http2_fields
nghttp2_option_set_no_rfc9113_leading_and_trailing_ws_validation(asking, 1)
