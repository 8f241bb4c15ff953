"""How long is the body? RFC 9112 section 6.3, without repair (R5, R7, R8, R11, R17, R18)."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cutthrough.wire.http1 cimport Head

cdef enum BodyKind:
    BODY_NONE = 0
    BODY_LENGTH             # exactly `length` bytes, > 0
    BODY_CHUNKED
    BODY_UNTIL_CLOSE        # responses only

cdef struct Framing:
    int kind                # BodyKind
    int64_t length          # BODY_LENGTH: bytes; else 0
    bint persistent         # may the connection carry another message after this one?
    bint trailers           # BODY_CHUNKED: may its trailers go on?

# 0, or minus the Outcome of the refusal. `request_method` is the Method that the response
# answers. 1xx are BODY_NONE; the caller knows from head.status that more heads follow.
# Content-Length: 0 is BODY_NONE.
cdef int read_request_framing(const Head *head, const char *buf, Framing *out) noexcept nogil
cdef int read_response_framing(const Head *head, const char *buf, int request_method,
                               Framing *out) noexcept nogil

# Does Connection name a field that a trailer section could have? Then no trailer of this
# message goes on, and no Trailer field (RFC 9110 section 7.6.1).
cdef bint names_trailers(const Head *head, const char *buf) noexcept nogil

# The chunk scanner. It rewrites in place what it has scanned: chunk extensions are dropped,
# without `trailers` these too, and with `decode` the whole frame, so that only data is left.
# Output is never longer than input and starts at buf.
cdef struct Chunks:
    uint8_t state           # private to framing.pyx
    uint8_t decode
    uint8_t trailers
    uint8_t done            # the last chunk, trailers and final CRLF have been scanned
    uint32_t name_hash      # private: of the trailer field name so far
    uint64_t left           # data bytes of this chunk still to come
    uint64_t announced      # data bytes of all chunks whose size line has been read
    uint32_t excess         # of all size lines so far, see MAX_CHUNK_EXCESS
    uint16_t line_bytes     # of the current size line or trailer line, for the limits
    uint16_t trailer_bytes  # of the trailer section so far

cdef enum:
    MAX_CHUNK_LINE = 4096       # one size line with its extensions
    # What all size lines together may exceed their data by, each chunk having 16 octets and
    # twice its data free: Go's numbers (CVE-2023-39326, where extensions made a server read
    # a gigabyte for a few bytes of body). Honest extensions, even a signature on chunks of
    # 64 KiB, stay below, however long the message is; one-byte chunks without any do too.
    MAX_CHUNK_EXCESS = 16384
    MAX_TRAILER_BYTES = 8192

cdef void start_chunks(Chunks *chunks, bint decode, bint trailers) noexcept nogil
# Scans buf[0:n]. Returns bytes consumed (all n, or fewer when `done`), or minus
# the Outcome BAD_FRAMING; *out_len is how many bytes at buf are to be sent on.
cdef int64_t scan_chunks(Chunks *chunks, char *buf, size_t n, size_t *out_len) noexcept nogil
