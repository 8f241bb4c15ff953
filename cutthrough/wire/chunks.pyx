# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The chunk scanner: RFC 9112 section 7.1, octet by octet (R8, R11, R15, R31).

`left` counts through DATA. Only the digits and the line end of a chunk line are sent on, because
the next reader could read white space, an extension or a row of zeros in another way. A
trailer's name is held until its colon shows whether the field is sent on or dropped.

    SIZE -> (SPACE) -> (EXTENSION) -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE
                                         | last chunk
                                         v
              VALUE_LF -> LINE_START -> NAME -> (LONG_NAME) -> VALUE -> VALUE_LF
                            | CR
                            v
                         END_LF -> done
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memmove
from cutthrough.outcome cimport BAD_FRAMING
from cutthrough.wire.chars cimport CC_HEX, CC_TOKEN, CC_VALUE, is_class
from cutthrough.wire.names cimport field_name

cdef enum State:
    SIZE = 0
    SPACE
    EXTENSION
    SIZE_LF
    DATA
    DATA_CR
    DATA_LF
    LINE_START
    NAME
    LONG_NAME
    VALUE
    VALUE_LF
    END_LF

# The treatment of an octet of the frame.
cdef enum Step:
    REFUSED = 0
    DROPPED
    SENT
    SENT_WITH_NAME          # the held part of a trailer's name is sent before it


cdef void start_chunks(Chunks *chunks, bint decode, bint trailers, bint lenient) noexcept nogil:
    chunks.state = SIZE
    chunks.decode = decode
    chunks.trailers = trailers
    chunks.lenient = lenient
    chunks.pauses = False
    chunks.done = chunks.padded = chunks.dropping = False
    chunks.name_len = chunks.before_len = 0
    chunks.left = chunks.announced = 0
    chunks.excess = 0
    chunks.line_bytes = 0
    chunks.trailer_bytes = 0


cdef int64_t scan_chunks(Chunks *chunks, char *buf, size_t n, size_t *out_len) noexcept nogil:
    cdef char *p = buf
    cdef char *end = buf + n
    cdef char *out = buf        # never ahead of p
    cdef bint frame = not chunks.decode
    # Octets of a held name that earlier calls consumed: they have no room in this buffer
    cdef size_t carried = chunks.name_len if chunks.state == NAME else 0
    cdef size_t run
    cdef Step step
    cdef char c
    out_len[0] = 0
    chunks.before_len = 0
    while p < end and not chunks.done:
        if chunks.pauses and chunks.state == LINE_START:
            chunks.pauses = chunks.decode = False
            break
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
        step = scan_octet(chunks, c)
        if step == REFUSED:
            out_len[0] = out - buf
            return -BAD_FRAMING
        if step == SENT_WITH_NAME and frame:
            if carried:                 # only the first name that ends in this call
                memcpy(chunks.before, chunks.name, carried)
                chunks.before_len = carried
            memcpy(out, chunks.name + carried, chunks.name_len - carried)
            out += chunks.name_len - carried
        if chunks.state != NAME:
            carried = 0
        if not frame or step == DROPPED:
            continue
        out[0] = c
        out += 1
    out_len[0] = out - buf
    return p - buf


# Reads one octet outside of chunk data.
cdef Step scan_octet(Chunks *chunks, char c) noexcept nogil:
    cdef int state = chunks.state
    cdef uint64_t free
    if state == SIZE:
        if is_class(c, CC_HEX):
            chunks.line_bytes += 1
            # Below 2^60, because sums of two must never overflow (R11)
            if chunks.left >> 56 or chunks.line_bytes > MAX_CHUNK_LINE:
                return REFUSED
            chunks.left = chunks.left << 4 | hex_value(c)
            # Of leading zeros one is sent, because not every reader takes 17 digits
            return SENT if chunks.left or chunks.line_bytes == 1 else DROPPED
        if chunks.line_bytes == 0:
            return REFUSED
        return scan_after_size(chunks, c)
    if state == SPACE:
        return scan_after_size(chunks, c)
    if state == EXTENSION:
        # chunk-ext is hop-by-hop (RFC 9112 section 7.1.1): it is read to the line's end and
        # dropped. Its content does not matter, its end does.
        if c == c'\r':
            chunks.state = SIZE_LF
            return SENT
        chunks.line_bytes += 1
        if not is_class(c, CC_VALUE) or chunks.line_bytes > MAX_CHUNK_LINE:
            return REFUSED
        return DROPPED
    if state == SIZE_LF:
        free = 16 + 2 * chunks.left
        chunks.excess += chunks.line_bytes + 2
        chunks.excess = 0 if chunks.excess <= free else <uint32_t>(chunks.excess - free)
        if chunks.excess > MAX_CHUNK_EXCESS:
            return REFUSED
        chunks.line_bytes = 0
        chunks.announced += chunks.left
        chunks.state = DATA if chunks.left else LINE_START
        return SENT if c == c'\n' else REFUSED
    if state == DATA_CR:
        chunks.state = DATA_LF
        return SENT if c == c'\r' else REFUSED
    if state == DATA_LF:
        chunks.state = SIZE
        return SENT if c == c'\n' else REFUSED
    if state == END_LF:
        chunks.done = True
        return SENT if c == c'\n' else REFUSED
    return scan_trailer_octet(chunks, c)


# After the digits of a size: RFC 9112 section 7.1.1 allows white space before ";" (BWS, which
# RFC 9110 section 5.6.3 requires a recipient to parse). If no ";" follows, it is padding. That is
# refused in a request, because two readers may read it in two ways.
cdef Step scan_after_size(Chunks *chunks, char c) noexcept nogil:
    if c == c';':
        chunks.state = EXTENSION
        return DROPPED
    if c == c' ' or c == c'\t':
        chunks.state = SPACE
        chunks.line_bytes += 1
        return DROPPED if chunks.line_bytes <= MAX_CHUNK_LINE else REFUSED
    if c != c'\r' or (chunks.state == SPACE and not chunks.lenient):
        return REFUSED
    chunks.padded |= chunks.state == SPACE
    chunks.state = SIZE_LF
    return SENT


# Reads one octet of the trailer section, as strictly as the fields of a request's head (R9).
cdef Step scan_trailer_octet(Chunks *chunks, char c) noexcept nogil:
    cdef int state = chunks.state
    chunks.trailer_bytes += 1
    if chunks.trailer_bytes > <uint32_t>(
            MAX_RESPONSE_TRAILER_BYTES if chunks.lenient else MAX_TRAILER_BYTES):
        return REFUSED
    if state == LINE_START:
        if c == c'\r':
            chunks.state = END_LF
            return SENT
        if not is_class(c, CC_TOKEN):
            return REFUSED
        chunks.state = NAME
        chunks.name[0] = c
        chunks.name_len = 1
        chunks.dropping = not chunks.trailers
        return DROPPED
    if state == NAME:
        if c == c':':
            chunks.state = VALUE
            if NOT_IN_TRAILERS >> field_name(chunks.name, chunks.name_len) & 1:
                chunks.dropping = True
            return DROPPED if chunks.dropping else SENT_WITH_NAME
        if not is_class(c, CC_TOKEN):
            return REFUSED
        if chunks.name_len < MOST_NAME:
            chunks.name[chunks.name_len] = c
            chunks.name_len += 1
            return DROPPED
        chunks.state = LONG_NAME        # longer than every name in NOT_IN_TRAILERS
        return DROPPED if chunks.dropping else SENT_WITH_NAME
    if state == LONG_NAME:
        if c == c':':
            chunks.state = VALUE
        elif not is_class(c, CC_TOKEN):
            return REFUSED
    elif state == VALUE:
        if c == c'\r':
            chunks.state = VALUE_LF
        elif not is_class(c, CC_VALUE):
            return REFUSED
    else:
        chunks.state = LINE_START
        if c != c'\n':
            return REFUSED
    return DROPPED if chunks.dropping else SENT


cdef uint32_t hex_value(char c) noexcept nogil:
    return c - c'0' if c <= c'9' else (c | 0x20) - c'a' + 10
