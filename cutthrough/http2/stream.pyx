# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A stream's memory, its places in lists, and the peer's message as HTTP/1.1.

    header block ─> records ─> head ──┐
    DATA ─────────> input ────────────┼─> read_stream ─> the session
    trailers ─────> lines ────────────┘

DATA is kept as it comes, at most a window of it, in blocks that stand one behind the other; the
framing of chunks is made when it is read, because a body of small frames must take no more memory
than one of large ones. A stream is found by the slot of its socket.

A window begins with 64 KiB, and doubles, up to 1 MiB, when its reader has taken as much and nothing
waits: with 64 KiB a peer behind 40 ms sends 1.4 MB a second. The octets that all windows may bring
beyond their first 64 KiB take half of the memory of requests at most.
"""

from libc.stdint cimport UINT16_MAX, uint16_t, uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset
from cutthrough.http2.nghttp2 cimport (
    NGHTTP2_FLAG_NONE, NGHTTP2_INITIAL_WINDOW_SIZE, nghttp2_session_set_local_window_size)
from cutthrough.net.buffers cimport (
    COPY_BYTES, HEAD_ROOM, OF_REQUESTS, OF_STRANGERS, Block, bytes_of, give_block, head_scratch,
    keep_bytes, make_room, most_held, take_block)
from cutthrough.net.linux cimport EAGAIN, ECONNRESET, ENOMEM
from cutthrough.net.multiplex cimport (
    HEARD_FAULT, HEARD_FLOOD, HEARD_HEADERS, HEARD_LATE, HEARD_NO_ROOM, HEARD_RESETS,
    PEER_BROKE_RULES, PEER_SILENT, REFUSED_EXTENDED, REFUSED_INVALID, REFUSED_MALFORMED,
    REFUSED_NO_ROOM, REFUSED_TOO_LARGE)
from cutthrough.net.sysio cimport BROKEN, CAN_READ, CAN_WRITE, is_given_up
from cutthrough.net.transport cimport REFUSES_CERTIFICATE, WANTS_CERTIFICATE
from cutthrough.wire.chunks cimport MAX_RESPONSE_TRAILER_BYTES, MAX_TRAILER_BYTES
from cutthrough.wire.http2_fields cimport FIELD_EXTRA, build_trailers_of_http2, put_field
from cutthrough.wire.http2_request cimport (
    HEAD_EXTENDED, HEAD_INVALID, HEAD_MALFORMED, Http2Request, build_request_of_http2)
from cutthrough.wire.http2_response cimport Http2Response, build_response_of_http2

cdef enum:
    MOST_SLOTS = 65535
    FIRST_SLOTS = 64
    MOST_WINDOW = NGHTTP2_INITIAL_WINDOW_SIZE << 4

# Streams by slot; slot 0 is not used. The free slots are a stack
cdef Stream **slots = NULL
cdef uint16_t *free_slots = NULL
cdef int n_slots = 0
cdef int n_free = 0
cdef int n_streams = 0
cdef size_t beyond_first = 0        # of all windows together


cdef bint add_slots() noexcept nogil:
    global slots, free_slots, n_slots, n_free
    cdef int n = min(<int>MOST_SLOTS + 1, max(<int>FIRST_SLOTS, 2 * n_slots))
    cdef int i
    cdef void *more
    if n == n_slots:
        return False
    more = realloc(slots, n * sizeof(Stream *))
    if more == NULL:
        return False
    slots = <Stream **>more
    more = realloc(free_slots, n * sizeof(uint16_t))
    if more == NULL:
        return False
    free_slots = <uint16_t *>more
    memset(slots + n_slots, 0, (n - n_slots) * sizeof(Stream *))
    for i in range(n - 1, max(1, n_slots) - 1, -1):
        free_slots[n_free] = <uint16_t>i
        n_free += 1
    n_slots = n
    return True


cdef Stream *make_stream(Demux *demux, int32_t id) noexcept nogil:
    global n_free, n_streams
    cdef Stream *st
    if n_free == 0 and not add_slots():
        return NULL
    st = <Stream *>calloc(1, sizeof(Stream))
    if st == NULL:
        return NULL
    n_free -= 1
    n_streams += 1
    st.slot = free_slots[n_free]
    slots[st.slot] = st
    st.demux = demux
    st.id = id
    st.due_octets = -1
    st.window = NGHTTP2_INITIAL_WINDOW_SIZE
    enlist(st, OPEN)
    return st


cdef void free_slot(Stream *st) noexcept nogil:
    global n_free
    if st.slot:
        slots[st.slot] = NULL
        free_slots[n_free] = st.slot
        n_free += 1
        st.slot = 0


cdef void free_stream(Stream *st) noexcept nogil:
    global n_streams, beyond_first
    cdef int which
    for which in range(<int>N_LISTS):
        delist(st, which)
    free_slot(st)
    give_block(&st.records)
    give_block(&st.head)
    give_input(st)
    give_block(&st.trailers)
    give_block(&st.part)
    give_block(&st.tail)
    give_block(&st.sent)
    n_streams -= 1
    beyond_first -= st.window - NGHTTP2_INITIAL_WINDOW_SIZE
    free(st)


cdef void give_input(Stream *st) noexcept nogil:
    cdef Block *next
    while st.input != NULL:
        next = st.input.next
        give_block(&st.input)
        st.input = next


cdef Stream *stream_of(const Socket *s) noexcept nogil:
    return slots[s.slot]


cdef int count_streams() noexcept nogil:
    return n_streams


# --- lists


cdef void enlist(Stream *st, int which) noexcept nogil:
    """As the last one; it keeps its place if it is listed."""
    cdef Queue *queue
    if st.demux == NULL or st.listed >> which & 1:
        return
    queue = &st.demux.lists[which]
    st.listed |= 1 << which
    st.links[which].next = NULL
    st.links[which].before = queue.last
    if queue.last != NULL:
        queue.last.links[which].next = st
    else:
        queue.first = st
    queue.last = st


cdef void delist(Stream *st, int which) noexcept nogil:
    if st.demux != NULL:
        remove_from(st.demux, st, which)


cdef void remove_from(Demux *demux, Stream *st, int which) noexcept nogil:
    cdef Queue *queue = &demux.lists[which]
    cdef Link *link = &st.links[which]
    if not st.listed >> which & 1:
        return
    st.listed &= ~(1 << which)
    if link.before != NULL:
        link.before.links[which].next = link.next
    else:
        queue.first = link.next
    if link.next != NULL:
        link.next.links[which].before = link.before
    else:
        queue.last = link.before


cdef void make_due(Stream *st, int ready) noexcept nogil:
    if st.sock != NULL:
        st.sock.ready |= <unsigned char>ready
        enlist(st, DUE)


cdef void break_stream(Stream *st, int error) noexcept nogil:
    if st.error == 0:
        st.error = error
        make_due(st, BROKEN | CAN_READ | CAN_WRITE)


cdef int error_of_loss(const Demux *d, int why) noexcept nogil:
    if why == HEARD_NO_ROOM:
        return ENOMEM
    if why == HEARD_LATE:
        return PEER_SILENT
    if why in (HEARD_FAULT, HEARD_RESETS, HEARD_FLOOD, HEARD_HEADERS):
        return PEER_BROKE_RULES
    if d != NULL and (d.error in (ENOMEM, WANTS_CERTIFICATE, REFUSES_CERTIFICATE)
                      or is_given_up(d.error)):
        return d.error
    return ECONNRESET


# --- the bytes of the peer's message


cdef void keep_field(Stream *st, const char *name, size_t n, const char *value,
                     size_t m) noexcept nogil:
    cdef size_t held = 0 if st.records == NULL else st.records.end
    if st.too_large or st.malformed:
        st.excess += <uint32_t>(n + m)
        return
    # A line of HTTP/1.1 is as long as a record; the library itself takes fields of 65 536 octets
    if held + n + m + FIELD_EXTRA > st.demux.most_records or n > UINT16_MAX or m > UINT16_MAX:
        st.too_large = True
        return
    if not make_room(&st.records, n + m + FIELD_EXTRA,
                     OF_REQUESTS if st.demux.asks else OF_STRANGERS):
        st.refusal = REFUSED_NO_ROOM
        st.too_large = True
        return
    st.records.end += <uint32_t>put_field(
        bytes_of(st.records) + st.records.end, name, n, value, m)


cdef void finish_head(Stream *st, bint ends) noexcept nogil:
    cdef Http2Request about
    cdef int length = HEAD_MALFORMED
    if st.records != NULL:
        length = build_request_of_http2(
            head_scratch(), HEAD_ROOM, bytes_of(st.records), st.records.end, ends, &about)
        st.method = about.method
    give_block(&st.records)
    st.is_whole = True
    if st.too_large:
        if st.refusal != REFUSED_NO_ROOM:
            st.refusal = REFUSED_TOO_LARGE
        st.too_large = False
        return
    if length < 0 or st.refusal == REFUSED_MALFORMED:
        if st.refusal != REFUSED_MALFORMED:
            st.refusal = refusal_of(length)
        return
    if length == 0:
        st.refusal = REFUSED_TOO_LARGE
        return
    st.is_tunnel = about.is_tunnel
    st.is_chunked = about.is_chunked
    st.due_octets = -1 if about.is_tunnel else about.length
    st.head = keep_bytes(head_scratch(), length, OF_STRANGERS)
    if st.head == NULL:
        st.refusal = REFUSED_NO_ROOM


cdef int refusal_of(int length) noexcept nogil:
    if length == HEAD_INVALID:
        return REFUSED_INVALID
    return REFUSED_EXTENDED if length == HEAD_EXTENDED else REFUSED_MALFORMED


cdef bint finish_response(Stream *st, bint ends) noexcept nogil:
    """Appends the head to interim heads that are not read yet."""
    cdef Http2Response about
    cdef size_t held = 0 if st.head == NULL else st.head.end - st.head.start
    cdef int length = -1
    if st.records != NULL and not st.too_large and not st.malformed:
        length = build_response_of_http2(head_scratch(), HEAD_ROOM, bytes_of(st.records),
                                         st.records.end, st.method, ends, &about)
    give_block(&st.records)
    if length <= 0 or held + length > st.demux.most_records or (
            not make_room(&st.head, length, OF_REQUESTS)):
        return False
    memcpy(bytes_of(st.head) + st.head.end, head_scratch(), length)
    st.head.end += <uint32_t>length
    st.is_whole = about.status >= 200
    st.is_chunked = st.is_whole and about.is_chunked
    st.keeps = False                    # the peer has read the request
    give_block(&st.sent)
    make_due(st, CAN_READ)
    return True


cdef bint finish_trailers(Stream *st) noexcept nogil:
    """False: malformed."""
    cdef int most = MAX_RESPONSE_TRAILER_BYTES if st.demux.asks else MAX_TRAILER_BYTES
    cdef int length = 0
    if st.records != NULL and not st.too_large:     # too many: left out, as HTTP allows
        length = build_trailers_of_http2(
            head_scratch(), HEAD_ROOM, bytes_of(st.records), st.records.end)
    give_block(&st.records)
    if 0 < length <= most and st.is_chunked:
        st.trailers = keep_bytes(head_scratch(), length, OF_REQUESTS)
    return length >= 0


cdef bint keep_data(Stream *st, const char *data, size_t n) noexcept nogil:
    cdef Block *last = st.last_input
    if st.input == NULL or (
            st.input == last and last.end - last.start + n <= <size_t>COPY_BYTES):
        if not make_room(&st.input, n, OF_REQUESTS):
            return False
        last = st.input
    elif last.end + n > last.size:
        last.next = take_block(COPY_BYTES, OF_REQUESTS)
        last = last.next
        if last == NULL:
            return False
    st.last_input = last
    memcpy(bytes_of(last) + last.end, data, n)
    last.end += <uint32_t>n
    make_due(st, CAN_READ)
    return True


cdef void note_end(Stream *st) noexcept nogil:
    st.peer_ended = True
    make_due(st, CAN_READ)


cdef inline size_t take_from(Block **block, char *out, size_t n) noexcept nogil:
    n = min(n, <size_t>(block[0].end - block[0].start))
    memcpy(out, bytes_of(block[0]) + block[0].start, n)
    block[0].start += <uint32_t>n
    if block[0].start == block[0].end:
        give_block(block)
    return n


cdef inline size_t take_input(Stream *st, char *out, size_t n) noexcept nogil:
    cdef Block *next = st.input.next
    n = take_from(&st.input, out, n)
    if st.input == NULL:
        st.input = next
    return n


cdef void grow_window(Stream *st, size_t taken) noexcept nogil:
    """If there is no memory for it, the window stays as it is."""
    global beyond_first
    st.since_grown += taken
    if st.since_grown < st.window or st.input != NULL or st.window >= <uint32_t>MOST_WINDOW or (
            st.demux == NULL or st.is_gone or st.peer_ended or
            beyond_first + st.window > most_held(OF_REQUESTS) // 2):
        return
    if nghttp2_session_set_local_window_size(
            st.demux.session, NGHTTP2_FLAG_NONE, st.id, 2 * st.window) == 0:
        beyond_first += st.window
        st.window *= 2
        st.since_grown = 0


cdef ssize_t read_stream(Stream *st, char *buf, size_t n, size_t *taken) noexcept nogil:
    cdef size_t filled = 0
    cdef size_t step
    taken[0] = 0
    while filled < n:
        if st.framing_at < st.framing_n:
            step = min(n - filled, <size_t>(st.framing_n - st.framing_at))
            memcpy(buf + filled, st.framing + st.framing_at, step)
            st.framing_at += <unsigned char>step
        elif st.head != NULL:
            step = take_from(&st.head, buf + filled, n - filled)
        elif st.input != NULL and (not st.is_chunked or st.chunk_left):
            step = n - filled
            if st.is_chunked:
                step = min(step, <size_t>st.chunk_left)
            step = take_input(st, buf + filled, step)
            taken[0] += step
            if st.is_chunked:
                st.chunk_left -= <uint32_t>step
                if st.chunk_left == 0:
                    frame_chunk(st, b"\r\n")
        elif not st.is_chunked or st.last_read:
            break
        elif st.input != NULL:
            st.chunk_left = st.input.end - st.input.start
            begin_chunk(st)
            continue
        elif st.peer_ended:
            st.last_read = True
            st.head = st.trailers           # read next, as a head is
            st.trailers = NULL
            frame_chunk(st, b"0\r\n")
            if st.head == NULL:
                frame_chunk(st, b"0\r\n\r\n")
                st.is_chunked = False
            continue
        else:
            break
        filled += step
        if st.last_read and st.is_chunked and st.head == NULL and (
                st.framing_at == st.framing_n):
            frame_chunk(st, b"\r\n")         # behind the trailers
            st.is_chunked = False
    if st.head != NULL or st.input != NULL or st.framing_at < st.framing_n:
        return filled
    if st.is_chunked and st.peer_ended:
        return filled                       # the last chunk comes next
    if st.error or st.peer_ended:           # reported by the next call
        return filled if filled else -st.error
    if st.sock != NULL:
        st.sock.ready &= ~CAN_READ
    return filled if filled else -EAGAIN


cdef void begin_chunk(Stream *st) noexcept nogil:
    st.framing_at = 0
    st.framing_n = <unsigned char>snprintf(
        <char *>st.framing, sizeof(st.framing), b"%x\r\n", st.chunk_left)


cdef void frame_chunk(Stream *st, const char *text) noexcept nogil:
    st.framing_at = 0
    st.framing_n = 0
    while text[st.framing_n]:
        st.framing[st.framing_n] = <unsigned char>text[st.framing_n]
        st.framing_n += 1


cdef ssize_t peek_stream(Stream *st, char *buf, size_t n) noexcept nogil:
    """If the body is chunked: its octets without framing, of which only the number is reliable."""
    cdef Block *block = st.head if st.head != NULL else st.input
    if block != NULL:
        n = min(n, <size_t>(block.end - block.start))
        memcpy(buf, bytes_of(block) + block.start, n)
        return n
    if st.error:
        return -st.error
    if st.peer_ended:
        return 0
    if st.sock != NULL:
        st.sock.ready &= ~CAN_READ
    return -EAGAIN
