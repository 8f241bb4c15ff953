"""Frames on their way out: the streams' octets, in a block that the carrier takes."""

from libc.stdint cimport int32_t, uint8_t, uint32_t
from cutthrough.http2.nghttp2 cimport (
    nghttp2_data_source, nghttp2_frame, nghttp2_nv, nghttp2_session)
from cutthrough.http2.stream cimport Demux, Stream

# The stream of this number; NULL: none.
cdef Stream *stream_in(nghttp2_session *session, int32_t id) noexcept nogil
# Writes the frames that the library has ready; not to the carrier while the connection is held, and
# in a batch at its end.
cdef void write_frames(Demux *d) noexcept nogil
# Sends what is written as far as the carrier takes it.
cdef void flush(Demux *d) noexcept nogil
# The connection is freed.
cdef void forget_late(Demux *d) noexcept nogil
# Gives the streams that are stuck another try: the carrier, or the connection's window, has room.
cdef void wake_stuck(Demux *d) noexcept nogil
cdef void wake_stream(Stream *st) noexcept nogil

# Passes the head of a request on; `ends`: nothing follows. False: no memory, or no more numbers.
cdef bint submit_request(Stream *st, const nghttp2_nv *fields, size_t n, bint ends) noexcept nogil
# Passes the head of an answer on, in the same way.
cdef bint submit_head(Stream *st, const nghttp2_nv *fields, size_t n, bint interim,
                      bint ends) noexcept nogil
# Puts octets of our message into frames, as far as windows and room allow; `ends`: these are the
# last. Returns how many were taken.
cdef size_t submit_data(Stream *st, const char *data, size_t n, bint ends) noexcept nogil
# Our message ends behind all octets that were said, with the trailers in st.part.
cdef void submit_end(Stream *st) noexcept nogil
cdef void reset(Stream *st, uint32_t code) noexcept nogil
# RST_STREAM, of a stream that may not have an object of ours.
cdef void submit_reset(Demux *d, int32_t id, uint32_t code) noexcept nogil
# The frame with our end has been written.
cdef void note_end_out(Stream *st) noexcept nogil
# For the library.
cdef int on_send_data(nghttp2_session *session, nghttp2_frame *frame, const uint8_t *head,
                      size_t n, nghttp2_data_source *source, void *user) noexcept nogil
