# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The trailers of our message, lines of HTTP/1.1 -> fields of HTTP/2."""

from libc.stdint cimport uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr
from cutthrough.http2.nghttp2 cimport NGHTTP2_NV_FLAG_NONE, nghttp2_nv, nghttp2_submit_trailer
from cutthrough.http2.stream cimport Stream
from cutthrough.net.buffers cimport bytes_of, give_block


cdef bint submit_trailers(Stream *st) noexcept nogil:
    """All of them: the last one may be the status of gRPC."""
    cdef const char *text = bytes_of(st.part) + st.part.start
    cdef size_t text_n = st.part.end - st.part.start
    cdef size_t n = count_lines(text, text_n)
    cdef nghttp2_nv *fields = <nghttp2_nv *>malloc(n * sizeof(nghttp2_nv))
    cdef int failed = -1
    if fields != NULL:
        n = split_lines(text, text_n, fields)
        failed = nghttp2_submit_trailer(st.demux.session, st.id, fields, n)
        free(fields)
    give_block(&st.part)
    st.ended = True
    return failed == 0


cdef size_t count_lines(const char *text, size_t n) noexcept nogil:
    cdef size_t count = 0
    cdef size_t i
    for i in range(n):
        count += text[i] == c'\n'
    return count


cdef size_t split_lines(const char *text, size_t n, nghttp2_nv *out) noexcept nogil:
    """`out`: room for as many fields as there are lines. Returns their number."""
    cdef const char *end = text + n
    cdef const char *line_end
    cdef const char *colon
    cdef const char *value
    cdef size_t count = 0
    while text < end:
        line_end = <const char *>memchr(text, c'\n', end - text)
        if line_end == NULL:
            break
        colon = <const char *>memchr(text, c':', line_end - text)
        if colon != NULL:
            value = colon + 1
            out[count].name = <uint8_t *>text
            out[count].namelen = colon - text
            out[count].flags = NGHTTP2_NV_FLAG_NONE
            while value < line_end and (value[0] == c' ' or value[0] == c'\t'):
                value += 1
            out[count].value = <uint8_t *>value
            out[count].valuelen = line_end - value
            while out[count].valuelen and value[out[count].valuelen - 1] <= c' ' and (
                    value[out[count].valuelen - 1] >= 0):
                out[count].valuelen -= 1
            count += 1
        text = line_end + 1
    return count
