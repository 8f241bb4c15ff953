# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Heads of HTTP/1.x messages: bytes -> spans into the caller's buffer.

This module knows RFC 9112 sections 2 to 5 and nothing else: target.pyx interprets the target,
framing.pyx the length of the body. One pass, one reading or none (R9): everything outside the
grammar is refused, and requests are never repaired. In responses some deviations are
accepted, as other proxies do (see http1.pxd). If one leaves any doubt where the head ends, the
head is marked `lenient`, and its connection carries no other message (R18).

An incomplete head is read again from its start when a new line end has come; the limit on
fields bounds that work. Between line ends only the new bytes are read. No refusal depends on
how the bytes were split: it comes with the byte that shows it, later bytes do not change it,
and a limit refuses a head only if the bytes below the limit are valid.
"""

from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memset
from cutthrough.outcome cimport (
    BAD_REQUEST, BAD_RESPONSE, HEAD_TOO_LARGE, RESPONSE_HEAD_TOO_LARGE, UNSUPPORTED_VERSION,
    URI_TOO_LONG)
from cutthrough.wire.chars cimport (
    CC_DIGIT, CC_TARGET, CC_TOKEN, equals_lower, find_control, is_class, next_member, skip_target,
    skip_token)
from cutthrough.wire.names cimport M_OTHER, field_name, method_of

cdef extern from "<string.h>" nogil:
    void *memrchr(const void *text, int c, size_t n)

cdef enum:
    MAX_NAME = 0xffff       # Field.name_len
    MOST_BEFORE_COLON = 8   # octets of white space, for which a head is read again
    MAX_HEAD = 1 << 24      # caps the caller's limit: offsets are 32 bits
    VERSION_10 = 0x110      # HTTP/1.0 as parse_version returns it
    VERSION_11 = 0x111


cdef int parse_request(Head *head, const char *buf, size_t n, size_t seen,
                       const HeadLimits *limits) noexcept nogil:
    cdef size_t most = min(<size_t>limits.head_bytes, <size_t>MAX_HEAD)
    cdef const char *p = buf
    cdef const char *end = buf + min(n, most)
    cdef const char *line_end
    cdef int length
    if seen and not can_change_answer(buf, n, seen, most, False):
        return 0
    head.method = M_OTHER
    head.lenient = False
    # RFC 9112 section 2.2: one CRLF before the request line is ignored, for robustness.
    if p < end and p[0] == c'\r':
        if p + 1 < end and p[1] != c'\n':
            return -BAD_REQUEST
        p += 2
    if p >= end:
        return 0 if n < most else -HEAD_TOO_LARGE
    line_end = p + limits.line_bytes + 2
    length = parse_request_line(head, buf, p, min(line_end, end))
    if length == 0 and line_end <= end:
        return -URI_TOO_LONG
    if length > 0:
        length = parse_fields(head, <char *>buf, buf + length, end, limits, False)
    if length == 0 and n >= most:
        return -HEAD_TOO_LARGE
    return length


cdef int parse_response(Head *head, char *buf, size_t n, size_t seen,
                        const HeadLimits *limits) noexcept nogil:
    cdef size_t most = min(<size_t>limits.head_bytes, <size_t>MAX_HEAD)
    cdef const char *p = buf
    cdef const char *end = buf + min(n, most)
    cdef const char *line_end
    cdef int length
    if seen and not can_change_answer(buf, n, seen, most, True):
        return 0
    head.lenient = False
    # One stray empty line is skipped, as Apache's mod_proxy_http does.
    if p < end and p[0] == c'\r':
        p += 1
        if p < end and p[0] != c'\n':
            return -BAD_RESPONSE
    if p < end and p[0] == c'\n':
        head.lenient = True
        p += 1
    line_end = p + limits.line_bytes + 2
    length = parse_status_line(head, buf, p, min(line_end, end)) if p < end else 0
    if length == 0 and line_end <= end:
        return -RESPONSE_HEAD_TOO_LARGE
    if length > 0:
        length = parse_fields(head, buf, buf + length, end, limits, True)
    if length == 0 and n >= most:
        return -RESPONSE_HEAD_TOO_LARGE
    return length


# Can the bytes after `seen` change the answer "more"? Inside a field line only an invalid
# byte, a line end or the limit can. A start line is read again each time, because at 8 KiB that
# costs 2 us, less than the system call that brought the byte.
cdef bint can_change_answer(const char *buf, size_t n, size_t seen,
                            size_t head_bytes, bint lenient) noexcept nogil:
    cdef const char *p = buf + seen
    cdef const char *end = buf + n
    cdef const char *line = <const char *>memrchr(buf, c'\n', seen)
    if n >= head_bytes or line == NULL or line < buf + 2:   # the LF of a leading CRLF
        return True
    line += 1
    if p == line or (p - 1)[0] == c'\r':
        return True
    if lenient and (line[0] == c' ' or line[0] == c'\t'):      # of the field before it
        return find_line_end(p, end, True) != end
    if memchr(line, c':', p - line) == NULL:
        if (p - 1)[0] == c' ' or (p - 1)[0] == c'\t':
            return True
        p = skip_token(p, end)
        if p == end:
            return False
        if p[0] != c':' or p - line > MAX_NAME:
            return True
    return find_line_end(p, end, lenient) != end


# Both parse_*_line return the offset of the first field line, 0, or minus the Outcome.
cdef int parse_request_line(Head *head, const char *buf, const char *p,
                            const char *end) noexcept nogil:
    cdef const char *from_
    cdef int version
    head.start = p - buf
    from_ = p
    p = skip_token(p, end)
    if p == end:
        return 0
    if p[0] != c' ' or p == from_:
        return -BAD_REQUEST     # a TLS ClientHello ends here, at its first byte
    head.method_len = p - from_
    head.method = method_of(from_, head.method_len)
    p += 1

    from_ = p
    p = skip_target(p, end)
    # curl sends UTF-8 as it was typed, and other proxies pass it; see rewrite.pyx
    head.is_raw = p < end and <uint8_t>p[0] >= 0x80
    if head.is_raw:
        while p < end and (is_class(p[0], CC_TARGET) or <uint8_t>p[0] >= 0x80):
            p += 1
    if p == end:
        return 0
    if p[0] != c' ' or p == from_:
        return -BAD_REQUEST
    head.target = from_ - buf
    head.target_len = p - from_
    p += 1

    if end - p >= 10 and memcmp(p, b"HTTP/1.1\r\n", 10) == 0:
        head.minor = HTTP_11
    else:
        version = parse_version(p, end)
        if version < 0:
            return -BAD_REQUEST
        if version == 0 or end - p < 9:
            return 0
        if p[8] != c'\r':
            return -BAD_REQUEST
        if end - p < 10:
            return 0
        if p[9] != c'\n':
            return -BAD_REQUEST
        if version != VERSION_10 and version != VERSION_11:
            return -UNSUPPORTED_VERSION
        head.minor = version - VERSION_10
    head.status = 0
    return p + 10 - buf


cdef int parse_status_line(Head *head, const char *buf, const char *p,
                           const char *end) noexcept nogil:
    cdef int version = parse_version(p, end)
    cdef int _i
    head.start = p - buf
    head.method = M_OTHER
    head.method_len = 0
    if version == 0:
        return 0
    # A higher version is read as the highest known one (RFC 9110 section 2.5); "HTTP/2.0" in
    # text is an origin's mistake, which curl, squid and mitmproxy pass.
    if version < VERSION_10:
        return -BAD_RESPONSE
    head.minor = HTTP_10 if version == VERSION_10 else HTTP_11
    head.lenient = head.lenient or version > VERSION_11
    p += 8
    if p == end:
        return 0
    if p[0] != c' ':
        return -BAD_RESPONSE
    p += 1

    head.status = 0
    for _i in range(3):
        if p == end:
            return 0
        if not is_class(p[0], CC_DIGIT):
            return -BAD_RESPONSE
        head.status = head.status * 10 + (p[0] - c'0')
        p += 1
    if head.status < 100:
        return -BAD_RESPONSE
    if p == end:
        return 0
    # Senders must send the space before an empty reason. It may be missing, as it often is, because
    # only one reading is left, and llhttp and Go accept it too.
    if p[0] == c' ':
        p += 1
    elif p[0] != c'\r' and p[0] != c'\n':
        return -BAD_RESPONSE
    head.target = p - buf
    p = find_line_end(p, end, True)
    if p == end:
        return 0
    head.target_len = p - buf - head.target
    if p[0] == c'\n':
        head.lenient = True
        return p + 1 - buf
    if p[0] != c'\r':
        return -BAD_RESPONSE
    if p + 1 == end:
        return 0
    if p[1] != c'\n':
        return -BAD_RESPONSE
    return p + 2 - buf


# Returns HTTP/d.d as 0x1dd; 0: more bytes needed; -1: not a version.
cdef int parse_version(const char *p, const char *end) noexcept nogil:
    cdef const char *form = b"HTTP/0.0"
    cdef int i
    for i in range(8):
        if p + i == end:
            return 0
        if i == 5 or i == 7:
            if not is_class(p[i], CC_DIGIT):
                return -1
        elif p[i] != form[i]:
            return -1
    return 0x100 | (p[5] - c'0') << 4 | (p[7] - c'0')


# Returns the length of the head, 0, or minus the Outcome. `lenient`: of a response. Writes into
# buf only then, and only when the head is whole: else the next call would find no obs-fold.
cdef int parse_fields(Head *head, char *buf, const char *p, const char *end,
                      const HeadLimits *limits, bint lenient) noexcept nogil:
    cdef int bad = BAD_RESPONSE if lenient else BAD_REQUEST
    cdef int too_large = RESPONSE_HEAD_TOO_LARGE if lenient else HEAD_TOO_LARGE
    cdef uint32_t most = min(limits.n_fields, <uint32_t>MAX_FIELDS)
    cdef uint32_t n = 0
    cdef uint32_t name_len
    cdef const char *line
    cdef Field *field
    cdef int name, offset
    cdef bint folded = False
    head.fields_start = p - buf
    memset(head.first, 0, sizeof(head.first))
    memset(head.count, 0, sizeof(head.count))
    while True:
        if p == end:
            return 0
        if p[0] == c'\r':
            if p + 1 == end:
                return 0
            if p[1] != c'\n':
                return -bad
            head.n_fields = n
            head.length = p + 2 - buf
            if folded:
                unfold(head, buf)
            return head.length
        if lenient and (p[0] == c'\n' or (n and (p[0] == c' ' or p[0] == c'\t'))):
            head.lenient = True
            if p[0] == c'\n':
                head.n_fields = n
                head.length = p + 1 - buf
                if folded:
                    unfold(head, buf)
                return head.length
            folded = True
            offset = continue_value(&head.fields[n - 1], buf, p, end)
            if offset <= 0:
                return -bad if offset else 0
            p = buf + offset
            continue
        if n == most:
            return -too_large

        line = p
        p = skip_token(p, end)
        if p == end:
            return 0
        name_len = p - line
        if lenient and name_len and (p[0] == c' ' or p[0] == c'\t'):
            head.lenient = True         # white space before the colon: put_line removes it
            while p < end and (p[0] == c' ' or p[0] == c'\t') and (
                    p - line < name_len + MOST_BEFORE_COLON):
                p += 1
            if p == end:
                return 0
        # Of a request obs-fold, an empty name and white space before the colon end here (R9).
        if p[0] != c':' or name_len == 0:
            return -bad
        if name_len > <uint32_t>MAX_NAME:
            return -too_large
        field = &head.fields[n]
        field.start = line - buf
        field.name_len = name_len
        name = field_name(line, name_len)
        field.name = name
        p += 1
        while p < end and (p[0] == c' ' or p[0] == c'\t'):
            p += 1
        offset = parse_value(field, buf, p, p, end, lenient)
        if offset <= 0:
            return -bad if offset else 0
        p = buf + offset
        if lenient and (p - 2)[0] != c'\r':
            head.lenient = True
        n += 1
        if head.count[name] == 0:
            head.first[name] = n
        head.count[name] += 1


# Returns the first octet that is not of a value. Control characters in a response are of it,
# because most peers pass them; NUL, CR and LF end a value for some readers (RFC 9110 section 5.5).
cdef inline const char *find_line_end(const char *p, const char *end, bint lenient) noexcept nogil:
    while True:
        p = find_control(p, end)
        if p == end or p[0] == c'\n' or p[0] == c'\r' or p[0] == 0 or (
                p[0] != c'\t' and not lenient):
            return p
        p += 1


# Reads a value that begins at `value`, from p to the end of its line. Returns the offset of
# the next line, 0: more bytes needed, or -1: bad.
cdef inline int parse_value(Field *field, const char *buf, const char *value, const char *p,
                            const char *end, bint lenient) noexcept nogil:
    cdef const char *last
    p = find_line_end(p, end, lenient)
    if p == end:
        return 0
    last = p - 1            # at worst the colon: a value may be empty
    if p[0] == c'\r':
        p += 1
        if p == end:
            return 0
    elif not lenient:
        return -1
    if p[0] != c'\n':
        return -1
    while last >= value and (last[0] == c' ' or last[0] == c'\t'):
        last -= 1
    field.value = value - buf
    field.value_len = last + 1 - value
    field.end = p + 1 - buf
    return field.end


# obs-fold: the line at p continues the field before it. Returns the same as parse_value.
cdef int continue_value(Field *field, const char *buf, const char *p,
                        const char *end) noexcept nogil:
    cdef const char *value = buf + field.value
    if field.value_len == 0:
        while p < end and (p[0] == c' ' or p[0] == c'\t'):
            p += 1
        value = p
    return parse_value(field, buf, value, p, end, True)


cdef void unfold(Head *head, char *buf) noexcept nogil:
    """Line ends within fields become spaces, because a second reading must see one line. At the
    end of a value they are none of it."""
    cdef Field *field
    cdef uint32_t i, at, last
    for i in range(head.n_fields):
        field = &head.fields[i]
        last = field.end - 1
        if buf[last - 1] == c'\r':
            last -= 1
        for at in range(field.start, last):
            if buf[at] == c'\n' or buf[at] == c'\r':
                buf[at] = c' '
        while field.value_len and (buf[field.value + field.value_len - 1] == c' '
                                   or buf[field.value + field.value_len - 1] == c'\t'):
            field.value_len -= 1


cdef bint begins_with_head(const char *buf, size_t n) noexcept nogil:
    if n >= 2 and buf[0] == c'\r' and buf[1] == c'\n':
        buf += 2
        n -= 2
    return n >= 4 and memcmp(buf, b"HEAD", 4) == 0 and (n == 4 or not is_class(buf[4], CC_TOKEN))


cdef bint has_token(const Head *head, const char *buf, int name,
                    const char *token, size_t token_len) noexcept nogil:
    cdef uint32_t left = head.count[name]
    cdef const Field *field = head.fields + head.first[name] - 1
    cdef const char *at
    cdef const char *end
    cdef const char *member
    cdef size_t n
    while left:
        if field.name == name:
            left -= 1
            at = buf + field.value
            end = at + field.value_len
            while next_member(&at, end, &member, &n):
                if n == token_len and equals_lower(member, token, n):
                    return True
        field += 1
    return False
