# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The error codes of streams that end early.

An origin's CANCEL and ENHANCE_YOUR_CALM go on to the client. gRPC has a status for each code of a
reset: CANCEL is DEADLINE_EXCEEDED behind the client's deadline, as a server that knows the deadline
means it, and INTERNAL_ERROR would be INTERNAL. Other codes of an origin are about its connection with
the proxy.
"""

from cutthrough.http2.nghttp2 cimport (
    NGHTTP2_CANCEL, NGHTTP2_CONNECT_ERROR, NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_INTERNAL_ERROR,
    NGHTTP2_NO_ERROR)
from cutthrough.http2.stream cimport stream_of


cdef uint32_t code_of_cut(const Stream *st) noexcept nogil:
    return st.end_code if st.end_code else NGHTTP2_INTERNAL_ERROR


cdef uint32_t code_of_release(const Stream *st) noexcept nogil:
    if st.demux.asks:
        return NGHTTP2_CANCEL               # nobody reads the rest of the response
    if st.end_out:
        return NGHTTP2_NO_ERROR             # RFC 9113 section 8.1
    if not st.abortive:
        return NGHTTP2_CANCEL
    return NGHTTP2_CONNECT_ERROR if st.is_tunnel else code_of_cut(st)


cdef bint pass_reset(const Socket *stream, const Socket *to) noexcept nogil:
    cdef uint32_t code = stream_of(stream).reset_code
    if code != NGHTTP2_CANCEL and code != NGHTTP2_ENHANCE_YOUR_CALM:
        return False
    stream_of(to).end_code = code
    return True
