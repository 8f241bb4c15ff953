# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Frames on their way out: the streams' octets, in a block that the carrier takes.

    carrier <─ out <─ nghttp2 <─ on_read, on_send_data <─ submit_data <─ outgoing
       └────── pieces ─────────────────────────────┘

Nothing is queued here. A stream's octets go from the caller's memory into a frame in `out` while
`submit_data` runs; if there are many, the carrier takes them from where they are, between the
headers of frames, and TLS is the first to copy them. If the peer's windows or `out` do not admit
some octets, they stay with the caller, which is a pump and reads no more. `out` is one block. When
the carrier takes nothing, nothing is read from it either, because answers to a peer that does not
read must not pile up in the library.

In a batch of events `out` is sent at the end, because the responses of one batch are often for a few
connections: a TLS record and a system call for each connection, not for each response.
"""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from libc.string cimport memcpy, memmove
from cutthrough.http2.meter cimport FRAME_HEAD, give_credit
from cutthrough.http2.nghttp2 cimport *
from cutthrough.http2.stream cimport (
    STUCK, Demux, Stream, break_stream, delist, enlist, make_due)
from cutthrough.http2.outgoing_trailers cimport submit_trailers
from cutthrough.net.buffers cimport (
    COPY_BLOCK, OF_RELAYS, OF_REQUESTS, OF_STRANGERS, bytes_of, give_block, take_block)
from cutthrough.net.gather cimport MOST_PIECES, try_gather
from cutthrough.net.linux cimport ECONNRESET, ENOMEM, iovec
from cutthrough.net.multiplex cimport STREAM_BROKE_RULES
from cutthrough.net.sends cimport end_reading, in_batch, set_batch_hook
from cutthrough.net.sysio cimport CAN_READ, CAN_WRITE, try_send

cdef enum:
    FRAME = 16384 + 9       # the library's longest frame
    RECORD = 16384          # plain octets of a full record of TLS
    LEAST_GATHERED = 32768  # octets that are worth a send of their own
    # Less is not worth a frame while more is to be said
    LEAST_DATA = 1024

# Frames of the call at hand that the carrier is to take from where they are, in their order
cdef Demux *gathered = NULL     # whose; NULL: there are none
cdef iovec pieces[MOST_PIECES]
cdef unsigned char heads[MOST_PIECES][FRAME_HEAD]
cdef char rest[COPY_BLOCK]      # no memory until it is used
cdef int n_pieces = 0
cdef size_t pieces_n = 0        # octets


cdef Stream *stream_in(nghttp2_session *session, int32_t id) noexcept nogil:
    return <Stream *>nghttp2_session_get_stream_user_data(session, id) if id else NULL


cdef void fail(Demux *d) noexcept nogil:
    """A frame was lost for want of memory, which neither side would see: the connection ends with
    all its streams, in its next turn."""
    d.error = d.error or ENOMEM
    d.carrier.ready |= CAN_READ
    end_reading(d.carrier.fd)


cdef void submit_reset(Demux *d, int32_t id, uint32_t code) noexcept nogil:
    if nghttp2_submit_rst_stream(d.session, NGHTTP2_FLAG_NONE, id, code) == NGHTTP2_ERR_NOMEM:
        fail(d)


cdef void resume(Stream *st) noexcept nogil:
    if nghttp2_session_resume_data(st.demux.session, st.id) == NGHTTP2_ERR_NOMEM:
        fail(st.demux)


cdef bint has_room(Demux *d, size_t n) noexcept nogil:
    if d.out == NULL:
        d.out = take_block(COPY_BLOCK, OF_RELAYS)
        if d.out == NULL:
            d.out = take_block(COPY_BLOCK, OF_REQUESTS)
        if d.out == NULL:
            d.out = take_block(COPY_BLOCK, OF_STRANGERS)
        if d.out == NULL:
            fail(d)
            return False
    if d.out.end + n <= d.out.size:
        return True
    if d.out.start == 0:
        return False
    d.out.end -= d.out.start
    memmove(bytes_of(d.out), bytes_of(d.out) + d.out.start, d.out.end)
    d.out.start = 0
    return d.out.end + n <= d.out.size


cdef inline void add_piece(const void *data, size_t n) noexcept nogil:
    global n_pieces, pieces_n
    cdef iovec *last = &pieces[n_pieces - 1] if n_pieces else NULL
    pieces_n += n
    if last != NULL and <const char *>last.iov_base + last.iov_len == data:
        last.iov_len += n
        return
    pieces[n_pieces] = iovec(<void *>data, n)
    n_pieces += 1


cdef inline void append(Demux *d, const void *data, size_t n) noexcept nogil:
    if d == gathered:
        add_piece(bytes_of(d.out) + d.out.end, n)
    memcpy(bytes_of(d.out) + d.out.end, data, n)
    d.out.end += <uint32_t>n


cdef void flush(Demux *d) noexcept nogil:
    """Streams that are stuck go on in the carrier's turn, which follows each call, because only an
    event of the carrier's lets it take more (R88)."""
    cdef bint was_stuck = d.stuck
    cdef ssize_t n
    if d.out == NULL or d.error:
        return
    if d.out.start == d.out.end or d.send_error:
        give_block(&d.out)
        d.stuck = False
        return
    d.stuck = True
    if not d.carrier.ready & CAN_WRITE:
        return
    n = try_send(d.carrier, bytes_of(d.out) + d.out.start, d.out.end - d.out.start)
    if n < 0:
        lose_sends(d, <int>-n)
        return
    d.out.start += <uint32_t>n
    if d.out.start == d.out.end:
        give_block(&d.out)
        d.stuck = False
        d.wakes_stuck |= was_stuck


cdef void lose_sends(Demux *d, int error) noexcept nogil:
    """Octets that the peer has sent before are still to be read: answers, for one (R84). The library's
    frames are made, because the library must go on, and thrown away."""
    d.send_error = error
    give_block(&d.out)
    d.stuck = False
    d.carrier.ready |= CAN_READ
    end_reading(d.carrier.fd)
    wake_stuck(d)                           # each finds out by its next send


cdef Demux *late = NULL         # connections that are sent at the end of the batch


cdef void send_late() noexcept nogil:
    global late
    cdef Demux *d
    while late != NULL:
        d = late
        late = d.next_late
        d.is_late = False
        flush(d)


cdef void forget_late(Demux *d) noexcept nogil:
    cdef Demux **place = &late
    if d.is_late:
        while place[0] != d:
            place = &place[0].next_late
        place[0] = d.next_late
        d.is_late = False


set_batch_hook(send_late)


cdef void make_frames(Demux *d) noexcept nogil:
    cdef const uint8_t *data
    cdef ssize_t n
    while d.error == 0:
        if d == gathered and (d.out.size - pieces_n < FRAME or not has_places()):
            break
        if not has_room(d, FRAME):
            flush(d)
            if d.error or not has_room(d, FRAME):
                break
        n = nghttp2_session_mem_send(d.session, &data)
        if n > 0:
            append(d, data, n)
        elif n < 0:
            fail(d)
        elif d.crowded and d != gathered and regains_room(d):
            resume_ends(d)
        else:
            break


cdef inline bint has_places() noexcept nogil:
    """For a header, its octets, and another frame."""
    return n_pieces + 3 <= MOST_PIECES


cdef bint gathers(Demux *d, const Stream *st) noexcept nogil:
    """Whether the octets at hand are so many that they fill records by themselves."""
    return (st.piece_n >= LEAST_GATHERED and st.tail == NULL and not (d.held or d.stuck)
            and d.carrier.ready & CAN_WRITE and has_room(d, FRAME + FRAME_HEAD + LEAST_DATA)
            and d.out.start == 0 and try_gather(d.carrier, pieces, 0) == 0)


cdef bint write_gathered(Demux *d) noexcept nogil:
    """As write_frames, but the frames go to the carrier at once, behind the frames in `out`. If the
    carrier takes a part, the rest is copied. True: there were frames, and it has taken all."""
    global gathered, n_pieces, pieces_n
    cdef ssize_t taken
    n_pieces, pieces_n = 0, 0
    if d.out.end:
        add_piece(bytes_of(d.out), d.out.end)
    gathered = d
    make_frames(d)
    gathered = NULL
    if d.error:
        return False
    taken = try_gather(d.carrier, pieces, pieces_n) if pieces_n else 0
    if taken < 0:
        lose_sends(d, <int>-taken)
        return False
    keep_pieces(d, taken)
    d.stuck = d.out != NULL
    return taken and not d.stuck


cdef void keep_pieces(Demux *d, size_t taken) noexcept nogil:
    cdef size_t n = 0
    cdef int i
    for i in range(n_pieces):
        if taken >= pieces[i].iov_len:
            taken -= pieces[i].iov_len
            continue
        memcpy(rest + n, <char *>pieces[i].iov_base + taken, pieces[i].iov_len - taken)
        n += pieces[i].iov_len - taken
        taken = 0
    if n == 0:
        give_block(&d.out)
        return
    memcpy(bytes_of(d.out), rest, n)    # two steps, because some pieces are there
    d.out.end = <uint32_t>n


cdef void write_frames(Demux *d) noexcept nogil:
    global late
    make_frames(d)
    if d.held or d.is_late:
        return
    if in_batch:
        d.is_late = True
        d.next_late = late
        late = d
    else:
        flush(d)


cdef void wake_stuck(Demux *d) noexcept nogil:
    cdef Stream *last = d.lists[<int>STUCK].last
    cdef Stream *st = d.lists[<int>STUCK].first
    cdef Stream *next
    while st != NULL:
        next = NULL if st == last else st.links[<int>STUCK].next
        wake_stream(st)
        st = next


cdef void wake_stream(Stream *st) noexcept nogil:
    delist(st, STUCK)
    if st.tail != NULL or (st.ends and not st.ended):
        resume(st)
    make_due(st, CAN_WRITE)


cdef void resume_ends(Demux *d) noexcept nogil:
    """Sends the last octets of streams that found no room: no call of their owners would."""
    cdef Stream *st = d.lists[<int>STUCK].first
    d.crowded = False
    while st != NULL:
        if st.tail != NULL or st.ends:
            resume(st)
        st = st.links[<int>STUCK].next


cdef bint submit_request(Stream *st, const nghttp2_nv *fields, size_t n, bint ends) noexcept nogil:
    cdef nghttp2_data_provider provider
    cdef int32_t number
    provider.source.ptr = NULL
    provider.read_callback = on_read
    number = nghttp2_submit_request(
        st.demux.session, NULL, fields, n, NULL if ends else &provider, st)
    if number < 0:
        return False
    st.id = number
    st.ended = ends
    st.provides = not ends
    st.waits = True                     # until it is in `out`
    st.demux.n_waiting += 1
    return True


cdef bint submit_head(Stream *st, const nghttp2_nv *fields, size_t n, bint interim,
                      bint ends) noexcept nogil:
    cdef nghttp2_data_provider provider
    cdef nghttp2_session *session = st.demux.session
    if interim:
        return nghttp2_submit_headers(
            session, NGHTTP2_FLAG_NONE, st.id, NULL, fields, n, NULL) == 0
    provider.source.ptr = NULL
    provider.read_callback = on_read
    st.ended = ends
    st.provides = not ends
    return nghttp2_submit_response(
        session, st.id, fields, n, NULL if ends else &provider) == 0


cdef size_t submit_data(Stream *st, const char *data, size_t n, bint ends) noexcept nogil:
    cdef Demux *d = st.demux
    cdef size_t before
    cdef bint goes_on
    st.piece, st.piece_n, st.piece_ends = data, n, ends
    while st.piece_n and d.error == 0 and d.send_error == 0 and st.error == 0:
        before = st.piece_n
        st.crowded = False
        resume(st)
        if gathers(d, st):
            goes_on = write_gathered(d)     # other frames may have taken the places
        else:
            write_frames(d)
            goes_on = False
        if st.piece_n == before and not (goes_on or st.crowded and regains_room(d)):
            break
    n -= st.piece_n
    st.piece, st.piece_n, st.piece_ends = NULL, 0, False
    return n


cdef bint regains_room(Demux *d) noexcept nogil:
    """DATA found no room: is there some now? False: an event of the carrier's will make it."""
    if d.stuck:
        return False
    if d.out == NULL or d.out.size - d.out.end >= FRAME + FRAME_HEAD + LEAST_DATA:
        return True
    flush(d)
    return d.out == NULL and d.error == 0


cdef void submit_end(Stream *st) noexcept nogil:
    st.ends = True
    resume(st)
    write_frames(st.demux)
    if not st.ended:
        enlist(st, STUCK)


cdef void reset(Stream *st, uint32_t code) noexcept nogil:
    submit_reset(st.demux, st.id, code)
    break_stream(st, STREAM_BROKE_RULES if code == NGHTTP2_PROTOCOL_ERROR else
                 ENOMEM if code == NGHTTP2_ENHANCE_YOUR_CALM else ECONNRESET)


cdef ssize_t on_read(nghttp2_session *session, int32_t id, uint8_t *buf, size_t length,
                     uint32_t *flags, nghttp2_data_source *source, void *user) noexcept nogil:
    """How much of the stream's octets goes into the next frame: see on_send_data."""
    cdef Demux *d = <Demux *>user
    cdef Stream *st = stream_in(session, id)
    cdef size_t n, room
    cdef bint last
    if st == NULL:
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
    if st.tail != NULL:
        n = st.tail.end - st.tail.start
        last = st.ends
    else:
        n = st.piece_n
        last = st.piece_ends or (st.ends and n == 0)
    if n == 0 and not last:
        return NGHTTP2_ERR_DEFERRED
    if d == gathered:
        length = min(length, <size_t>(RECORD - FRAME_HEAD))
    if n > length:
        n = length
        last = False
    # Behind this frame there must be room for the longest other one
    if d == gathered and not has_places():
        return wait_for_room(st)
    room = d.out.size - (pieces_n if d == gathered else d.out.end)
    room -= min(room, <size_t>(FRAME + FRAME_HEAD))
    if n > room:
        if room < LEAST_DATA:
            return wait_for_room(st)
        n = room
        last = False
    flags[0] |= NGHTTP2_DATA_FLAG_NO_COPY
    if last:
        flags[0] |= NGHTTP2_DATA_FLAG_EOF
        if st.part != NULL:
            flags[0] |= NGHTTP2_DATA_FLAG_NO_END_STREAM
            if not submit_trailers(st):
                break_stream(st, ENOMEM)        # reset by the library
                return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
    return n


cdef ssize_t wait_for_room(Stream *st) noexcept nogil:
    st.crowded = True
    if st.tail != NULL or st.ends:
        st.demux.crowded = True
        enlist(st, STUCK)
    return NGHTTP2_ERR_DEFERRED


cdef int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                      size_t n, nghttp2_data_source *source, void *user) noexcept nogil:
    cdef Demux *d = <Demux *>user
    cdef Stream *st = stream_in(session, frame.hd.stream_id)
    if st == NULL:
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
    if n and st.tail == NULL and d == gathered:
        memcpy(heads[n_pieces], head, FRAME_HEAD)
        add_piece(heads[n_pieces], FRAME_HEAD)
    else:
        append(d, head, FRAME_HEAD)
    if n:
        if st.tail != NULL:
            append(d, bytes_of(st.tail) + st.tail.start, n)
            st.tail.start += <uint32_t>n
            if st.tail.start == st.tail.end:
                give_block(&st.tail)
        else:
            if d == gathered:
                add_piece(st.piece, n)
            else:
                append(d, st.piece, n)
            st.piece += n
            st.piece_n -= n
        give_credit(&d.meter, n)
    if frame.hd.flags & NGHTTP2_FLAG_END_STREAM:
        note_end_out(st)
    return 0


cdef void note_end_out(Stream *st) noexcept nogil:
    st.ended = st.end_out = True
    if st.released and not st.peer_ended:   # the rest of the request is of no use
        submit_reset(st.demux, st.id, NGHTTP2_NO_ERROR)
