"""The chunk scanner: RFC 9112 section 7.1, octet by octet (R8, R11, R15, R31)."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from cutthrough.wire.names cimport F_DATE, F_OTHER, MOST_NAME, N_FIELD_NAMES

cdef enum:
    MAX_CHUNK_LINE = 4096       # one size line with its extensions
    # How many bytes all size lines together may have beyond their allowance, which is 16
    # octets for each chunk and twice its data: Go's numbers (CVE-2023-39326: extensions made
    # a server read a gigabyte for a few bytes of body). Honest extensions stay below, even a
    # signature on each 64 KiB of a message of any length, and so do plain one-byte chunks.
    MAX_CHUNK_EXCESS = 16384
    MAX_TRAILER_BYTES = 8192
    # Of a response, as of the longest head: gRPC's trailers have the details of its status
    MAX_RESPONSE_TRAILER_BYTES = 65536
    # Fields that frame, route, authenticate or steer must not come in trailers (RFC 9110
    # section 6.5.1); here these are all fields that the proxy obeys in a head. A reader that
    # merges trailers into the head would obey them too, and credentials for the proxy would
    # reach the origin (R15).
    NOT_IN_TRAILERS = ((1 << N_FIELD_NAMES) - 1) & ~(1 << F_OTHER | 1 << F_DATE)

# The chunk scanner. It rewrites its input in place. It drops chunk extensions, white space,
# all leading zeros of a size but one, and the fields of NOT_IN_TRAILERS; all trailers if
# `trailers` is not set; if `decode` is set, the whole frame, and only data is left. The output is
# never longer than the input and starts at buf; the caller sends `before` before it. If `pauses` is
# set, the scan stops once, between the last chunk and its trailers, and then decodes no more: what
# comes out behind that is the trailers and the empty line.
cdef struct Chunks:
    uint8_t state           # private to chunks.pyx
    uint8_t decode
    uint8_t trailers
    uint8_t pauses          # set by the caller, until the scan has stopped there
    uint8_t lenient         # a response: white space without an extension may follow a size
    uint8_t done            # the last chunk, trailers and final CRLF have been scanned
    uint8_t padded          # such white space was read: no other message on the connection
    uint8_t dropping        # private: the current trailer field is dropped
    uint8_t name_len        # private: length of `name`
    uint8_t before_len      # length of `before`, as of the last call
    char name[MOST_NAME]    # private: a trailer's name, until its end shows if it is dropped
    char before[MOST_NAME]  # the part of a kept name that earlier calls had consumed
    uint64_t left           # data bytes of this chunk still to come
    uint64_t announced      # data bytes of all chunks whose size line has been read
    uint32_t excess         # bytes of all size lines so far, see MAX_CHUNK_EXCESS
    uint16_t line_bytes     # bytes of the current size line
    uint32_t trailer_bytes  # bytes of the trailer section so far

cdef void start_chunks(Chunks *chunks, bint decode, bint trailers, bint lenient) noexcept nogil
# Scans buf[0:n]. Returns bytes consumed (all n, or fewer when `done`), or -BAD_FRAMING.
# *out_len is the number of bytes at buf to send on, those before a refused octet included.
cdef int64_t scan_chunks(Chunks *chunks, char *buf, size_t n, size_t *out_len) noexcept nogil
