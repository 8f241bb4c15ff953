"""The chunk scanner: RFC 9112 section 7.1, octet by octet (R8, R11, R15, R31)."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

# The chunk scanner. It rewrites in place what it has scanned: chunk extensions are dropped,
# without `trailers` these too, and with `decode` the whole frame, so that only data is left.
# Output is never longer than input and starts at buf.
cdef struct Chunks:
    uint8_t state           # private to chunks.pyx
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
# the Outcome BAD_FRAMING; *out_len is how many bytes at buf are to be sent on, also
# before the octet that was refused.
cdef int64_t scan_chunks(Chunks *chunks, char *buf, size_t n, size_t *out_len) noexcept nogil

# Must the field whose name has this hash (FNV-1a) not come in trailers?
cdef enum:
    HASH_START = 0x811c9dc5
cdef uint32_t add_to_hash(uint32_t hash_, char c) noexcept nogil
cdef bint is_forbidden(uint32_t hash_) noexcept nogil
