# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The chunk scanner: RFC 9112 section 7.1, octet by octet (R8, R11, R15, R31).

`left` counts through DATA.

    SIZE -> EXTENSION -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE
                            | last chunk
                            v
                         LINE_START -> NAME -> VALUE -> VALUE_LF -> LINE_START
                            | CR
                            v
                         END_LF -> done
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memmove
from cutthrough.outcome cimport BAD_FRAMING, label_of
from cutthrough.wire.chars cimport CC_HEX, CC_TOKEN, CC_VALUE, is_class, to_lower

cdef enum State:
    SIZE = 0
    EXTENSION
    SIZE_LF
    DATA
    DATA_CR
    DATA_LF
    LINE_START
    NAME
    VALUE
    VALUE_LF
    END_LF

cdef enum:
    MAX_SIZE_DIGITS = 15        # of a chunk: below 2^60, so that sums of two never overflow


cdef void start_chunks(Chunks *chunks, bint decode, bint trailers) noexcept nogil:
    chunks.state = SIZE
    chunks.decode = decode
    chunks.trailers = trailers
    chunks.done = False
    chunks.left = chunks.announced = 0
    chunks.name_hash = chunks.excess = 0
    chunks.line_bytes = 0
    chunks.trailer_bytes = 0


cdef int64_t scan_chunks(Chunks *chunks, char *buf, size_t n, size_t *out_len) noexcept nogil:
    cdef char *p = buf
    cdef char *end = buf + n
    cdef char *out = buf        # never ahead of p
    cdef bint frame = not chunks.decode
    cdef size_t run
    cdef int before
    cdef char c
    out_len[0] = 0
    while p < end and not chunks.done:
        if chunks.state == DATA:
            run = min(<uint64_t>(end - p), chunks.left)
            if out != p:
                memmove(out, p, run)
            out += run
            p += run
            chunks.left -= run
            if chunks.left == 0:
                chunks.state = DATA_CR
            continue
        c = p[0]
        p += 1
        if chunks.state == EXTENSION:
            # chunk-ext is hop-by-hop (RFC 9112 section 7.1.1): read to the line's end and
            # dropped. What it says is nobody's business, where it ends is.
            if c == c'\r':
                chunks.state = SIZE_LF
                if frame:
                    out[0] = c
                    out += 1
                continue
            chunks.line_bytes += 1
            if not is_class(c, CC_VALUE) or chunks.line_bytes > MAX_CHUNK_LINE:
                out_len[0] = out - buf
                return -BAD_FRAMING
            continue
        before = chunks.state
        if not try_step(chunks, c):
            out_len[0] = out - buf
            return -BAD_FRAMING
        # Nothing of a chunk line but its digits and its line end is sent on, and of
        # trailers that stay here not even the first octet.
        if frame and chunks.state != EXTENSION and (
                chunks.trailers or not (NAME <= before <= VALUE_LF or chunks.state == NAME)):
            out[0] = c
            out += 1
    out_len[0] = out - buf
    return p - buf


# One octet outside of chunk data and extensions; False: it must not stand here.
cdef bint try_step(Chunks *chunks, char c) noexcept nogil:
    cdef int state = chunks.state
    cdef uint64_t free
    if state == SIZE:
        if is_class(c, CC_HEX):
            chunks.line_bytes += 1
            chunks.left = chunks.left << 4 | hex_value(c)
            return chunks.line_bytes <= MAX_SIZE_DIGITS
        if chunks.line_bytes == 0:
            return False
        if c == c';':
            chunks.state = EXTENSION
            return True
        # Not even the white space that the grammar has before ";" (nobody sends it, and
        # without ";" it is the padding that two readers take two ways).
        chunks.state = SIZE_LF
        return c == c'\r'
    if state == SIZE_LF:
        free = 16 + 2 * chunks.left
        chunks.excess += chunks.line_bytes + 2
        chunks.excess = 0 if chunks.excess <= free else <uint32_t>(chunks.excess - free)
        if chunks.excess > MAX_CHUNK_EXCESS:
            return False
        chunks.line_bytes = 0
        chunks.announced += chunks.left
        chunks.state = DATA if chunks.left else LINE_START
        return c == c'\n'
    if state == DATA_CR:
        chunks.state = DATA_LF
        return c == c'\r'
    if state == DATA_LF:
        chunks.state = SIZE
        return c == c'\n'
    if state == END_LF:
        chunks.done = True
        return c == c'\n'

    # The trailer section: field lines as strict as those of a head (R9).
    chunks.trailer_bytes += 1
    if chunks.trailer_bytes > MAX_TRAILER_BYTES:
        return False
    if state == LINE_START:
        if c == c'\r':
            chunks.state = END_LF
            return True
        chunks.state = NAME
        chunks.name_hash = add_to_hash(HASH_START, c)
        return is_class(c, CC_TOKEN)
    if state == NAME:
        if c == c':':
            chunks.state = VALUE
            return not is_forbidden(chunks.name_hash)
        chunks.name_hash = add_to_hash(chunks.name_hash, c)
        return is_class(c, CC_TOKEN)
    if state == VALUE:
        if c == c'\r':
            chunks.state = VALUE_LF
            return True
        return is_class(c, CC_VALUE)
    chunks.state = LINE_START
    return c == c'\n'


cdef uint32_t hex_value(char c) noexcept nogil:
    return c - c'0' if c <= c'9' else (c | 0x20) - c'a' + 10


# Fields that frame, route, authenticate or steer must not come in trailers (RFC 9110
# section 6.5.1); here these are all that we obey in a head. A reader that merges trailers
# into the head would obey them too, and credentials for us would reach the origin (R15).
# Names come octet by octet, so their hash is compared (FNV-1a): another name of equal hash
# is refused too, one of these never passes.
cdef enum:
    N_FORBIDDEN = 16

cdef uint32_t forbidden[N_FORBIDDEN]


cdef uint32_t add_to_hash(uint32_t hash_, char c) noexcept nogil:
    return (hash_ ^ <uint8_t>to_lower(c)) * <uint32_t>0x01000193


cdef bint is_forbidden(uint32_t hash_) noexcept nogil:
    cdef int i
    for i in range(N_FORBIDDEN):
        if forbidden[i] == hash_:
            return True
    return False


cdef int number
cdef char octet
for number, name in enumerate((
        b"host", b"content-length", b"transfer-encoding", b"connection", b"keep-alive",
        b"proxy-connection", b"te", b"trailer", b"upgrade", b"via", b"proxy-authorization",
        b"proxy-authenticate", b"proxy-authentication-info", b"authorization", b"expect",
        b"max-forwards")):
    forbidden[number] = HASH_START
    for octet in name:
        forbidden[number] = add_to_hash(forbidden[number], octet)
assert number == N_FORBIDDEN - 1


# For tests and tools.

cdef class ChunkScanner:
    """The chunk scanner as an object: feed(bytes) -> (consumed, bytes to send on)."""
    cdef Chunks chunks

    def __init__(self, decode=False, trailers=True):
        start_chunks(&self.chunks, decode, trailers)

    @property
    def done(self):
        return bool(self.chunks.done)

    def feed(self, bytes data):
        """Returns (consumed, output), or the refusal's label. Nothing may follow one."""
        cdef bytearray copy = bytearray(data)
        cdef size_t out_len
        cdef int64_t got = scan_chunks(&self.chunks, copy, len(data), &out_len)
        if got < 0:
            return label_of(<int>-got).decode()
        return got, bytes(copy[:out_len])

    def feed_at(self, address, n):
        """The same in place, on n bytes at this address. Returns (consumed, out_len)."""
        cdef size_t out_len
        cdef int64_t got = scan_chunks(&self.chunks, <char *><size_t>address, n, &out_len)
        if got < 0:
            return label_of(<int>-got).decode()
        return got, out_len
