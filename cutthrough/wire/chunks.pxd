"""The chunk scanner: RFC 9112 section 7.1, octet by octet (R8, R11, R15, R31)."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cutthrough.wire.names cimport F_DATE, F_OTHER, MOST_NAME, N_FIELD_NAMES

cdef enum:
    MAX_CHUNK_LINE = 4096       # one size line with its extensions
    # What all size lines together may exceed their data by, each chunk having 16 octets and
    # twice its data free: Go's numbers (CVE-2023-39326, where extensions made a server read
    # a gigabyte for a few bytes of body). Honest extensions, even a signature on chunks of
    # 64 KiB, stay below, however long the message is; one-byte chunks without any do too.
    MAX_CHUNK_EXCESS = 16384
    MAX_TRAILER_BYTES = 8192
    # Fields that frame, route, authenticate or steer must not come in trailers (RFC 9110
    # section 6.5.1); here these are all that we obey in a head. A reader that merges trailers
    # into the head would obey them too, and credentials for us would reach the origin (R15).
    NOT_IN_TRAILERS = ((1 << N_FIELD_NAMES) - 1) & ~(1 << F_OTHER | 1 << F_DATE)

# The chunk scanner. It rewrites in place what it has scanned: chunk extensions, white space
# and all but one of a size's leading zeros are dropped, so are the fields of NOT_IN_TRAILERS,
# without `trailers` all trailers, and with `decode` the whole frame, so that only data is
# left. Output is never longer than input and starts at buf; `before` goes before it.
cdef struct Chunks:
    uint8_t state           # private to chunks.pyx
    uint8_t decode
    uint8_t trailers
    uint8_t lenient         # a size may be followed by white space alone: responses
    uint8_t done            # the last chunk, trailers and final CRLF have been scanned
    uint8_t odd             # one was: nothing else is read from that connection
    uint8_t dropping        # private: this trailer field does not go on
    uint8_t name_len        # private: of `name`
    uint8_t before_len      # of `before`; of the last call only
    char name[MOST_NAME]    # private: of a trailer field, until it is known whether it goes on
    char before[MOST_NAME]  # of it, what came with earlier calls and now goes on
    uint64_t left           # data bytes of this chunk still to come
    uint64_t announced      # data bytes of all chunks whose size line has been read
    uint32_t excess         # of all size lines so far, see MAX_CHUNK_EXCESS
    uint16_t line_bytes     # of the current size line or trailer line, for the limits
    uint16_t trailer_bytes  # of the trailer section so far

cdef void start_chunks(Chunks *chunks, bint decode, bint trailers, bint lenient) noexcept nogil
# Scans buf[0:n]. Returns bytes consumed (all n, or fewer when `done`), or minus
# the Outcome BAD_FRAMING; *out_len is how many bytes at buf are to be sent on, also
# before the octet that was refused.
cdef int64_t scan_chunks(Chunks *chunks, char *buf, size_t n, size_t *out_len) noexcept nogil
