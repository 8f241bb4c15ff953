# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A request's head, HTTP/1.1 as a session writes it -> HEADERS.

    POST /c HTTP/1.1                    :method POST  :scheme https  :authority a.b  :path /c
    Host: a.b                           te trailers
    Transfer-Encoding: chunked
                                        and what is of the request, not of the connection

`te: trailers` is true of each request, because trailers pass in both directions; gRPC demands it.
An upgrade is left out, because HTTP/2 has none (RFC 9113 section 8.6).
"""

from libc.stdint cimport uint8_t
from cutthrough.http2.frames cimport submit_request
from cutthrough.http2.nghttp2 cimport NGHTTP2_NV_FLAG_NONE, nghttp2_nv
from cutthrough.http2.stream cimport (
    MESSAGE_CHUNKS, MESSAGE_DONE, MESSAGE_LENGTH, Stream)
from cutthrough.net.buffers cimport HEAD_ROOM, give_block
from cutthrough.wire.framing cimport BODY_CHUNKED, BODY_LENGTH, Framing, read_request_framing
from cutthrough.wire.http1 cimport MAX_FIELDS, Field, Head, HeadLimits, parse_request
from cutthrough.wire.names cimport (
    F_CONNECTION, F_HOST, F_HTTP2_SETTINGS, F_KEEP_ALIVE, F_PROXY_CONNECTION, F_TE,
    F_TRANSFER_ENCODING, F_UPGRADE, is_connect)

cdef enum:
    PSEUDO = 4
    # Of a connection of HTTP/1.1 (RFC 9113 section 8.2.2), or said in another field
    LEFT_OUT = (1 << F_CONNECTION | 1 << F_KEEP_ALIVE | 1 << F_PROXY_CONNECTION | 1 << F_TE
                | 1 << F_TRANSFER_ENCODING | 1 << F_UPGRADE | 1 << F_HTTP2_SETTINGS | 1 << F_HOST)

# Of the head at hand; used within one call only
cdef Head head
cdef nghttp2_nv fields[PSEUDO + 1 + MAX_FIELDS]


cdef int write_request(Stream *st, const char *text, size_t n, size_t seen) noexcept nogil:
    cdef HeadLimits limits = HeadLimits(HEAD_ROOM, HEAD_ROOM, MAX_FIELDS)
    cdef Framing framing
    cdef int used = parse_request(&head, text, n, seen, &limits)
    if used <= 0:
        return used if used == 0 else -1
    if is_connect(head.method) or head.first[F_HOST] == 0 or (
            read_request_framing(&head, text, &framing) < 0):
        return -1
    st.method = head.method
    if framing.kind == BODY_CHUNKED:
        st.message = MESSAGE_CHUNKS
    elif framing.kind == BODY_LENGTH:
        st.message = MESSAGE_LENGTH
        st.left = framing.length
    else:
        st.message = MESSAGE_DONE
        st.keeps = False                # the session still has its head
        give_block(&st.sent)
    if not submit_request(st, fields, collect_fields(text), st.message == MESSAGE_DONE):
        return -1
    return used


cdef size_t collect_fields(const char *text) noexcept nogil:
    """The library turns names into lower case."""
    cdef const Field *field = &head.fields[head.first[F_HOST] - 1]
    cdef size_t n = PSEUDO + 1
    cdef int i
    fields[0] = entry(b":method", 7, text + head.start, head.method_len)
    fields[1] = entry(b":scheme", 7, b"https", 5)
    fields[2] = entry(b":authority", 10, text + field.value, field.value_len)
    fields[3] = entry(b":path", 5, text + head.target, head.target_len)
    fields[4] = entry(b"te", 2, b"trailers", 8)
    for i in range(head.n_fields):
        field = &head.fields[i]
        if not LEFT_OUT >> field.name & 1:
            fields[n] = entry(
                text + field.start, field.name_len, text + field.value, field.value_len)
            n += 1
    return n


cdef inline nghttp2_nv entry(const char *name, size_t n, const char *value,
                             size_t m) noexcept nogil:
    return nghttp2_nv(<uint8_t *>name, <uint8_t *>value, n, m, NGHTTP2_NV_FLAG_NONE)
