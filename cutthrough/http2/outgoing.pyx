# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The bytes of an answer or a request, HTTP/1.1 as a session writes it -> frames.

    MESSAGE_HEAD ─> MESSAGE_LENGTH ─┐
         │ └─────> MESSAGE_CHUNKS ─┼─> MESSAGE_DONE
         └───────> MESSAGE_OPEN ───┘

A short head is always taken whole, because a short reply of the session's own must never find a
full stream; and so is the short body that comes with it. Other bytes are taken only if they fit into
frames now, and so are long heads and interim ones, which an origin can send in any number: the library
keeps copies, which nothing bounds (R31). The writers of the bytes have checked them: if there is a
fault here all the same, it ends the stream by a reset.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memcmp, memcpy
from cutthrough.http2.frames cimport reset, submit_data, submit_end, submit_head, write_frames
from cutthrough.http2.outgoing_request cimport write_request
from cutthrough.http2.nghttp2 cimport (
    NGHTTP2_INTERNAL_ERROR, NGHTTP2_NV_FLAG_NONE, nghttp2_nv)
from cutthrough.http2.stream cimport (
    MESSAGE_CHUNKS, MESSAGE_DONE, MESSAGE_HEAD, MESSAGE_LENGTH, MESSAGE_OPEN, STUCK, Stream, enlist)
from cutthrough.net.buffers cimport (
    COPY_BLOCK, HEAD_ROOM, HEAD_BLOCK, OF_RELAYS, bytes_of, give_block, keep_bytes, make_room)
from cutthrough.net.linux cimport ECONNRESET, EPIPE
from cutthrough.net.sysio cimport CAN_WRITE
from cutthrough.wire.chars cimport CC_HEX, find_control, is_class
from cutthrough.wire.framing cimport (
    BODY_CHUNKED, BODY_LENGTH, BODY_NONE, Framing, read_response_framing)
from cutthrough.wire.http1 cimport MAX_FIELDS, Field, Head, HeadLimits, parse_response
from cutthrough.wire.names cimport (
    F_CONNECTION, F_KEEP_ALIVE, F_PROXY_CONNECTION, F_TRANSFER_ENCODING, F_UPGRADE)

cdef enum:
    # Of a connection of HTTP/1.1 (RFC 9113 section 8.2.2)
    OF_CONNECTION = (1 << F_CONNECTION | 1 << F_KEEP_ALIVE | 1 << F_PROXY_CONNECTION
                     | 1 << F_TRANSFER_ENCODING | 1 << F_UPGRADE)
    # Octets behind a head that are taken whole: the body of a reply of our own. The longest are a
    # file of `pac` (generation.pac) and a page of `error_pages` (generation.error_pages)
    SHORT = HEAD_BLOCK
    # … and of such a reply's head
    SHORT_HEAD = 8192
    # Of a request that the origin may refuse unread: a head, and a first window of 64 KiB, because an
    # origin opens no window of what it does not read
    MOST_SENT = COPY_BLOCK

# The place in a chunked body.
cdef enum Step:
    SIZE = 0
    EXTENSION
    DATA
    DATA_END
    TRAILERS

# Of the head at hand; used within one call only
cdef Head head
cdef nghttp2_nv fields[MAX_FIELDS + 1]


cdef ssize_t write_message(Stream *st, const char *a, size_t n, const char *b,
                           size_t m) noexcept nogil:
    cdef ssize_t taken = take_both(st, a, n, b, m)
    if st.keeps:
        if taken <= <ssize_t>n:
            remember(st, a, max(<ssize_t>0, taken))
        else:
            remember(st, a, n)
            remember(st, b, taken - n)
    return taken


cdef void remember(Stream *st, const char *data, size_t n) noexcept nogil:
    if n == 0 or not st.keeps:
        return
    st.keeps = (n + (0 if st.sent == NULL else st.sent.end) <= MOST_SENT
                and make_room(&st.sent, n, OF_RELAYS))
    if not st.keeps:
        give_block(&st.sent)
        return
    memcpy(bytes_of(st.sent) + st.sent.end, data, n)
    st.sent.end += <uint32_t>n


cdef ssize_t take_both(Stream *st, const char *a, size_t n, const char *b,
                       size_t m) noexcept nogil:
    cdef bint begins = st.message == MESSAGE_HEAD
    cdef ssize_t taken, more
    if st.demux == NULL or st.error:
        return -ECONNRESET if st.error == 0 else -st.error
    if st.demux.send_error:
        return -st.demux.send_error
    if st.abortive or st.ends:
        return -EPIPE
    taken = take(st, a, n)
    if taken == <ssize_t>n and m:
        more = take(st, b, m)
        taken = taken + more if more >= 0 else more
    if taken < 0:
        reset(st, NGHTTP2_INTERNAL_ERROR)
        write_frames(st.demux)
        return -EPIPE
    if <size_t>taken < n + m and begins and n + m - taken <= SHORT and (
            st.message == MESSAGE_LENGTH and st.left == n + m - taken):
        if <size_t>taken < n:
            return short_of(st, taken, n + m) if not keep_tail(st, a + taken, n - taken) else n
        if keep_tail(st, b + (taken - n), n + m - taken):
            taken = n + m
    write_frames(st.demux)
    return short_of(st, taken, n + m)


cdef inline ssize_t short_of(Stream *st, ssize_t taken, size_t offered) noexcept nogil:
    if <size_t>taken < offered:
        if st.sock != NULL:
            st.sock.ready &= ~CAN_WRITE
        enlist(st, STUCK)
    return taken


cdef bint keep_tail(Stream *st, const char *data, size_t n) noexcept nogil:
    """The last octets of a message."""
    st.tail = keep_bytes(data, n, OF_RELAYS)
    if st.tail == NULL:
        return False
    st.message = MESSAGE_DONE
    st.left = 0
    submit_end(st)
    return True


cdef ssize_t take(Stream *st, const char *data, size_t n) noexcept nogil:
    """Octets taken; -1: a fault."""
    cdef size_t done = 0
    cdef size_t step
    cdef ssize_t taken
    while done < n:
        if st.message == MESSAGE_HEAD:
            taken = take_head(st, data + done, n - done)
            if taken < 0:
                return -1
            if taken == 0:
                break                       # see must_wait
            done += taken
        elif st.message == MESSAGE_LENGTH:
            step = min(n - done, <size_t>st.left)
            taken = submit_data(st, data + done, step, step == st.left)
            st.left -= taken
            done += taken
            if st.left == 0:
                st.message = MESSAGE_DONE
            if <size_t>taken < step:
                break
        elif st.message == MESSAGE_CHUNKS:
            taken = take_chunks(st, data + done, n - done)
            if taken < 0:
                return -1
            done += taken
            if st.message == MESSAGE_CHUNKS:
                break
        elif st.message == MESSAGE_OPEN:
            return done + submit_data(st, data + done, n - done, False)
        else:
            return -1                       # behind the end
    return done


# --- the head


cdef ssize_t take_head(Stream *st, const char *data, size_t n) noexcept nogil:
    cdef HeadLimits limits = HeadLimits(HEAD_ROOM, HEAD_ROOM, MAX_FIELDS)
    cdef const char *text = data
    cdef size_t held = 0
    cdef int used
    if st.part != NULL:
        held = st.part.end
        if not make_room(&st.part, n, OF_RELAYS):
            return -1
        memcpy(bytes_of(st.part) + held, data, n)
        st.part.end += <uint32_t>n
        text = bytes_of(st.part)
    if st.demux.asks:
        used = write_request(st, text, held + n, held)
    else:
        # The parser writes to folded lines alone, and a session sends none. Only
        # without_controls changes `text`, when the head is whole
        used = parse_response(&head, <char *>text, held + n, held, &limits)
    if used == 0:
        if st.part == NULL:
            st.part = keep_bytes(data, n, OF_RELAYS)
            if st.part == NULL:
                return -1
        return n
    if used > 0 and held == 0 and must_wait(st, used):
        return 0
    if used < 0 or not (st.demux.asks or pass_head(st, text)):
        return -1
    give_block(&st.part)
    return used - held


cdef inline bint must_wait(const Stream *st, int n) noexcept nogil:
    """The library would keep the head at hand, because the carrier takes no more frames."""
    return st.demux.stuck and not st.demux.asks and (n > SHORT_HEAD or head.status < 200)


cdef bint pass_head(Stream *st, const char *text) noexcept nogil:
    cdef Framing framing
    cdef bint interim = head.status < 200
    cdef bint ends = False
    cdef char status[3]
    if head.status == 101:
        return False
    if not interim:
        if st.is_tunnel and head.status < 300:
            st.message = MESSAGE_OPEN
        elif read_response_framing(&head, text, st.method, &framing) < 0:
            return False
        elif framing.kind == BODY_NONE:
            st.message = MESSAGE_DONE
            ends = True
        elif framing.kind == BODY_LENGTH:
            st.message = MESSAGE_LENGTH
            st.left = framing.length
        else:
            st.message = MESSAGE_CHUNKS if framing.kind == BODY_CHUNKED else MESSAGE_OPEN
            st.left = 0
    status[0] = <char>(c'0' + head.status // 100)
    status[1] = <char>(c'0' + head.status // 10 % 10)
    status[2] = <char>(c'0' + head.status % 10)
    fields[0] = nghttp2_nv(<uint8_t *>b":status", <uint8_t *>status, 7, 3, NGHTTP2_NV_FLAG_NONE)
    return submit_head(st, fields, 1 + collect_fields(text), interim, ends)


cdef size_t collect_fields(const char *text) noexcept nogil:
    """The library turns names into lower case."""
    cdef const Field *field
    cdef size_t n = 0
    cdef int i
    for i in range(head.n_fields):
        field = &head.fields[i]
        if OF_CONNECTION >> field.name & 1:
            continue
        n += 1
        fields[n] = nghttp2_nv(
            <uint8_t *>text + field.start, <uint8_t *>text + field.value, field.name_len,
            without_controls(<char *>text + field.value, field.value_len), NGHTTP2_NV_FLAG_NONE)
    return n


cdef size_t without_controls(char *value, size_t n) noexcept nogil:
    """HTTP/2 has none in a value (RFC 9113 section 8.2.1); some origins send them in HTTP/1.1."""
    cdef const char *end = value + n
    cdef const char *p = find_control(value, end)
    cdef size_t kept = p - value
    while p < end:
        if p == find_control(p, p + 1) and p[0] != c'\t':
            p += 1
            continue
        value[kept] = p[0]
        kept += 1
        p += 1
    return kept


# --- a chunked body


cdef ssize_t take_chunks(Stream *st, const char *data, size_t n) noexcept nogil:
    cdef size_t at = 0
    cdef size_t step, taken
    cdef bint ends
    cdef char c
    while at < n:
        if st.step == DATA:
            step = min(n - at, <size_t>st.left)
            # Most bodies end in the read that brought their last data
            ends = step == st.left and n - at - step == 7 and (
                memcmp(data + at + step, b"\r\n0\r\n\r\n", 7) == 0)
            taken = submit_data(st, data + at, step, ends)
            at += taken
            st.left -= taken
            if taken < step:
                return at
            if ends:
                st.message = MESSAGE_DONE
                return at + 7
            if st.left == 0:
                st.step = DATA_END
            continue
        c = data[at]
        at += 1
        if st.step == SIZE:
            if is_class(c, CC_HEX):
                st.left = st.left << 4 | (c - c'0' if c <= c'9' else (c | 0x20) - c'a' + 10)
            elif c == c'\n':
                st.step = DATA if st.left else TRAILERS
            elif c != c'\r':
                st.step = EXTENSION
        elif st.step == EXTENSION:
            if c == c'\n':
                st.step = DATA if st.left else TRAILERS
        elif st.step == DATA_END:
            if c == c'\n':
                st.step = SIZE
        elif not keep_trailer(st, c):
            return -1
        elif st.message == MESSAGE_DONE:
            return at
    return at


cdef bint keep_trailer(Stream *st, char c) noexcept nogil:
    """One octet of the trailer section; the empty line ends the answer."""
    cdef const char *text
    cdef uint32_t n
    if not make_room(&st.part, 1, OF_RELAYS):
        return False
    bytes_of(st.part)[st.part.end] = c
    st.part.end += 1
    text = bytes_of(st.part)
    n = st.part.end
    if c != c'\n' or not (n == 2 or (n > 2 and text[n - 2] == c'\r' and text[n - 3] == c'\n')):
        return True
    if n == 2:
        give_block(&st.part)
    st.message = MESSAGE_DONE
    submit_end(st)
    return True
