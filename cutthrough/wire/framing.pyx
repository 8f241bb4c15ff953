# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""How long is the body? RFC 9112 section 6.3, without repair (R5, R7, R8, R11, R17, R18).

Two ways to read a length mean two readers that disagree, so whatever leaves a choice is
refused: both length fields, either of them twice, a coding beside chunked, a length where
none may stand. The chunk scanner below has these states; `left` counts through DATA.

    SIZE -> EXTENSION -> SIZE_LF -> DATA -> DATA_CR -> DATA_LF -> SIZE
                            | last chunk
                            v
                         LINE_START -> NAME -> VALUE -> VALUE_LF -> LINE_START
                            | CR
                            v
                         END_LF -> done
"""

from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memmove
from cutthrough.outcome cimport (
    BAD_FRAMING, BAD_RESPONSE_FRAMING, UNSUPPORTED_CODING, label_of)
from cutthrough.wire.chars cimport (
    CC_DIGIT, CC_HEX, CC_TOKEN, CC_VALUE, is_class, is_name, is_token,
    next_member, text_of, to_lower)
from cutthrough.wire.http1 cimport (
    F_CONNECTION, F_CONTENT_LENGTH, F_PROXY_CONNECTION, F_TRANSFER_ENCODING, HTTP_10,
    HTTP_11, Field, HeadLimits, M_CONNECT, M_HEAD, M_TRACE, MAX_FIELDS, equals_lower,
    has_token, parse_request, parse_response)


cdef int read_request_framing(const Head *head, const char *buf, Framing *out) noexcept nogil:
    cdef int refused
    out.kind = BODY_NONE
    out.length = 0
    out.trailers = False
    out.persistent = head.minor == HTTP_11 and not says_close(head, buf)
    # The common request has neither field, and so no body (rule 7).
    if head.count[F_CONTENT_LENGTH] + head.count[F_TRANSFER_ENCODING] == 0:
        return 0
    refused = read_length_fields(head, buf, out)
    if refused:
        return refused
    # The content of CONNECT has no meaning, and the tunnel begins here (R2); that of TRACE
    # must not be (RFC 9110 section 9.3.8), so readers may not look for it.
    if (head.method == M_CONNECT or head.method == M_TRACE) and out.kind != BODY_NONE:
        return -BAD_FRAMING
    return 0


cdef int read_response_framing(const Head *head, const char *buf, int request_method,
                               Framing *out) noexcept nogil:
    cdef int fields = head.count[F_CONTENT_LENGTH] + head.count[F_TRANSFER_ENCODING]
    out.kind = BODY_NONE
    out.length = 0
    out.trailers = False
    out.persistent = head.minor == HTTP_11 and not says_close(head, buf)
    # RFC 9112 section 6.3, rule 2: such a response ends with its head, and both fields
    # are ignored in it.
    if request_method == M_CONNECT and 200 <= head.status <= 299:
        return 0
    if fields and read_length_fields(head, buf, out) != 0:
        return -BAD_RESPONSE_FRAMING

    if head.status < 200 or head.status == 204:
        # RFC 9110 section 8.6, RFC 9112 section 6.1: neither field may stand here. A zero
        # length says the same as the status and is common; anything else says otherwise.
        if out.kind != BODY_NONE:
            return -BAD_RESPONSE_FRAMING
    elif head.status == 304 or request_method == M_HEAD:
        out.kind = BODY_NONE    # the fields describe the response that GET would have had
        out.length = 0
    elif fields == 0:
        out.kind = BODY_UNTIL_CLOSE
        out.persistent = False
    return 0


# RFC 9112 section 9.3; Proxy-Connection is not in it, but who sends "close" means it.
cdef bint says_close(const Head *head, const char *buf) noexcept nogil:
    if head.count[F_CONNECTION] and has_token(head, buf, F_CONNECTION, b"close", 5):
        return True
    return (head.count[F_PROXY_CONNECTION]
            and has_token(head, buf, F_PROXY_CONNECTION, b"close", 5))


# 0 with kind and length set, or minus the Outcome in the words for requests.
cdef int read_length_fields(const Head *head, const char *buf, Framing *out) noexcept nogil:
    cdef int at = head.first[F_TRANSFER_ENCODING]
    cdef const Field *field
    if at:
        # HTTP/1.0 has no transfer codings: a peer of that version reads a body that ends
        # with the connection (R5). With a Content-Length there are two readings (R7).
        if head.minor == HTTP_10 or head.count[F_CONTENT_LENGTH]:
            return -BAD_FRAMING
        out.trailers = not names_trailers(head, buf)
        return read_codings(head, buf, out)
    if head.count[F_CONTENT_LENGTH] != 1:
        return -BAD_FRAMING
    field = &head.fields[head.first[F_CONTENT_LENGTH] - 1]
    out.length = parse_length(buf + field.value, field.value_len)
    if out.length < 0:
        return -BAD_FRAMING
    out.kind = BODY_LENGTH if out.length else BODY_NONE
    return 0


# Exactly one field that says exactly "chunked" goes on (R8). Codings that we do not know
# before a last "chunked" are 501, all else 400 (RFC 9112 sections 6.1 and 6.3).
cdef int read_codings(const Head *head, const char *buf, Framing *out) noexcept nogil:
    cdef const Field *field = &head.fields[head.first[F_TRANSFER_ENCODING] - 1]
    cdef int fields_left = head.count[F_TRANSFER_ENCODING]
    cdef const char *at
    cdef const char *end
    cdef const char *member
    cdef size_t n
    cdef int others = 0
    cdef bint chunked = False
    if fields_left == 1 and field.value_len == 7 and is_name(buf + field.value, b"chunked", 7):
        out.kind = BODY_CHUNKED
        return 0
    while fields_left:
        if field.name == F_TRANSFER_ENCODING:
            fields_left -= 1
            at = buf + field.value
            end = at + field.value_len
            while next_member(&at, end, &member, &n):
                if chunked or not is_token(member, n):
                    return -BAD_FRAMING
                if n == 7 and is_name(member, b"chunked", 7):
                    chunked = True
                else:
                    others += 1
        field += 1
    return -UNSUPPORTED_CODING if chunked and others else -BAD_FRAMING


# 1*DIGIT, at most INT64_MAX; -1 if it is anything else (R11).
cdef int64_t parse_length(const char *p, size_t n) noexcept nogil:
    cdef int64_t length = 0
    cdef size_t i
    if n < 1 or n > 19:         # INT64_MAX has 19 digits
        return -1
    for i in range(n):
        if not is_class(p[i], CC_DIGIT):
            return -1
        if length > (INT64_MAX - (p[i] - c'0')) // 10:
            return -1
        length = length * 10 + (p[i] - c'0')
    return length


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


# A trailer's name has gone on before its last octet shows whether Connection names it. So
# if it names any, all go: trailers may be discarded on the way (RFC 9110 section 6.5.1).
# What never comes in trailers does not count: "keep-alive" and "TE" are in many a list.
cdef bint names_trailers(const Head *head, const char *buf) noexcept nogil:
    cdef uint32_t left = head.count[F_CONNECTION] + head.count[F_PROXY_CONNECTION]
    cdef const Field *field = &head.fields[0]
    cdef const char *at
    cdef const char *end
    cdef const char *member
    cdef size_t n, i
    cdef uint32_t hash_
    while left:
        if field.name == F_CONNECTION or field.name == F_PROXY_CONNECTION:
            left -= 1
            at = buf + field.value
            end = at + field.value_len
            while next_member(&at, end, &member, &n):
                if n == 5 and equals_lower(member, b"close", 5):
                    continue
                hash_ = HASH_START
                for i in range(n):
                    hash_ = add_to_hash(hash_, member[i])
                if not is_forbidden(hash_):
                    return True
        field += 1
    return False


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
                return -BAD_FRAMING
            continue
        before = chunks.state
        if not try_step(chunks, c):
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
    HASH_START = 0x811c9dc5
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

def read_framing(source, request_method=None):
    """Returns (kind, length, persistent) or a refusal's label for a whole, valid head.

    It is a request head, or with `request_method` (a Method number) the head of a
    response to such a request. kind: "none", "length", "chunked", "until-close".
    """
    cdef Framing out
    cdef int got = frame(&out, source, request_method)
    if got < 0:
        return label_of(-got).decode()
    return ("none", "length", "chunked", "until-close")[out.kind], out.length, bool(out.persistent)


def passes_trailers(source, request_method=None):
    """May the trailers of a message with this whole, valid head go on?"""
    cdef Framing out
    return frame(&out, source, request_method) == 0 and bool(out.trailers)


cdef int frame(Framing *out, source, request_method) except 1:
    cdef Head head
    cdef HeadLimits limits = HeadLimits(65536, 65536, MAX_FIELDS)
    cdef size_t n
    cdef const char *buf = text_of(source, &n)
    cdef int got
    if request_method is None:
        got = parse_request(&head, buf, n, 0, &limits)
    else:
        got = parse_response(&head, buf, n, 0, &limits)
    if got <= 0:
        raise ValueError("not a whole, valid head")
    if request_method is None:
        return read_request_framing(&head, buf, out)
    return read_response_framing(&head, buf, request_method, out)


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
