# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Rewriting heads: hop-by-hop fields out, Host and Via in (R12, R14, R15, R16).

Header fields of HTTP/1 are dropped here; what a rule drops in edits, those of HTTP/2 in
http2_request. The head that was read is never changed: fields that stay are copied, neighbours in
one run, and a dropped field ends a run. The caller has accepted the framing (framing.pyx) and read
the target (target.pyx) before.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy
from cutthrough.outcome cimport (
    BAD_FRAMING, BAD_REQUEST, BAD_RESPONSE, BAD_RESPONSE_FRAMING, HEAD_TOO_LARGE,
    RESPONSE_HEAD_TOO_LARGE)
from cutthrough.wire.chars cimport (
    CC_DIGIT, equals_lower, is_class, is_same, is_token, next_member)
from cutthrough.wire.date cimport DATE_BYTES
from cutthrough.wire.framing cimport names_trailers
from cutthrough.wire.hops cimport UNCOUNTED, find_loop, read_hops
from cutthrough.wire.http1 cimport Field, HTTP_10, HTTP_11
from cutthrough.wire.names cimport (
    F_CONNECTION, F_CONTENT_LENGTH, F_EXPECT, F_HOST, F_HTTP2_SETTINGS, F_KEEP_ALIVE,
    F_MAX_FORWARDS, F_OTHER, F_PROXY_AUTHENTICATE, F_PROXY_AUTHENTICATION_INFO,
    F_PROXY_AUTHORIZATION, F_PROXY_CONNECTION, F_TE, F_TRAILER, F_TRANSFER_ENCODING,
    F_UPGRADE, F_VIA, M_OPTIONS, field_name)
from cutthrough.wire.authority cimport build_authority, put_number
from cutthrough.wire.target cimport FORM_ABSOLUTE, FORM_SECURE

cdef enum:
    # RFC 9110 section 7.6.1, and the fields of this hop's authentication (R15).
    HOP_BY_HOP = (1 << F_CONNECTION | 1 << F_PROXY_CONNECTION | 1 << F_KEEP_ALIVE
                  | 1 << F_TE | 1 << F_UPGRADE | 1 << F_PROXY_AUTHORIZATION
                  | 1 << F_PROXY_AUTHENTICATE | 1 << F_PROXY_AUTHENTICATION_INFO
                  | 1 << F_HTTP2_SETTINGS)
    # Fields that Connection cannot remove (R14), because the message's way and end depend on them.
    PROTECTED = (1 << F_HOST | 1 << F_CONTENT_LENGTH | 1 << F_TRANSFER_ENCODING
                 | 1 << F_VIA | 1 << F_UPGRADE | 1 << F_MAX_FORWARDS)
    MAX_LISTED = 1024       # other names in Connection; honest messages have one or two
    MAX_PSEUDONYM = 64

cdef struct Listed:         # the field names in the Connection fields
    uint32_t known          # bit set of FieldName
    uint32_t n              # number of other names
    uint32_t at[MAX_LISTED]         # the other names, as spans of the head's buffer
    uint32_t length[MAX_LISTED]


cdef int build_request_head(const Writing *w, const Head *head, const char *buf,
                            const Target *target, int default_port, Span *path) noexcept nogil:
    cdef char *o = w.out
    cdef Listed listed
    cdef uint32_t dropped
    cdef int64_t hops
    cdef int refused
    cdef bint absolute
    # Nothing below can write more than this, so nothing below checks the room again.
    if w.pseudonym_len > MAX_PSEUDONYM or w.cap < <size_t>head.length + REWRITE_ROOM + (
            2 * target.path_len if head.is_raw else 0):
        return -HEAD_TOO_LARGE
    if head.count[F_CONTENT_LENGTH] + head.count[F_TRANSFER_ENCODING] > 1:
        return -BAD_FRAMING     # framing.pyx has refused it; checked again here (R7)
    refused = 0 if read_connection(&listed, head, buf) else -BAD_REQUEST
    if refused == 0 and head.count[F_VIA]:
        refused = find_loop(head, buf, w.pseudonym, w.pseudonym_len)
    if refused == 0:
        refused = read_hops(head, buf, &hops)
    if refused:
        return refused

    o = put(o, buf + head.start, head.method_len + 1)       # with the space
    path.at = o - w.out
    # Only an absolute form can have an empty path, or one that begins with its query. An empty
    # path is "*" for OPTIONS, else "/" (RFC 9112 sections 3.2.1 and 3.2.4).
    absolute = target.form == FORM_ABSOLUTE or target.form == FORM_SECURE
    if target.path_len == 0 and head.method == M_OPTIONS and absolute:
        o = put(o, b"*", 1)
    else:
        if target.path_len == 0 or buf[target.path] != c'/' and absolute:
            o = put(o, b"/", 1)
        if head.is_raw:
            o = put_encoded(o, buf + target.path, target.path_len)
        else:
            o = put(o, buf + target.path, target.path_len)
    path.n = o - w.out - path.at
    o = put(o, b" HTTP/1.1\r\nHost: ", 17)
    o += build_authority(o, target, default_port)
    o = put(o, b"\r\n", 2)

    dropped = HOP_BY_HOP | 1 << F_HOST
    # An expectation in HTTP/1.0 is ignored (RFC 9110 section 10.1.1): the client does not know
    # 100, but to the origin, which gets HTTP/1.1, it would look as if it did.
    if head.minor == HTTP_10:
        dropped |= 1 << F_EXPECT
    if head.count[F_TRAILER] and (
            not head.count[F_TRANSFER_ENCODING] or names_trailers(head, buf)):
        dropped |= 1 << F_TRAILER       # it would announce trailers that are dropped
    o = copy_fields(o, head, buf, &listed, dropped, hops - 1 if hops > 0 else hops)
    if w.options & KEEP_UPGRADE:
        o = put_offer(o, head, buf)
    return finish(w, o, head, NULL)


cdef int build_response_head(const Writing *w, const Head *head, const char *buf,
                             const char *date) noexcept nogil:
    cdef char *o = w.out
    cdef Listed listed
    cdef uint32_t dropped = HOP_BY_HOP
    if w.pseudonym_len > MAX_PSEUDONYM or (
            w.cap < <size_t>head.length + head.n_fields + REWRITE_ROOM):
        return -RESPONSE_HEAD_TOO_LARGE
    if not read_connection(&listed, head, buf):
        return -BAD_RESPONSE
    # Our own version, whatever the origin's was (RFC 9110 section 2.5).
    o = put(o, b"HTTP/1.1 ", 9)
    o = put(o, buf + head.start + 9, 3)
    o = put(o, b" ", 1)
    o = put(o, buf + head.target, head.target_len)
    o = put(o, b"\r\n", 2)
    if head.status < 200 or head.status == 204 or w.options & DROP_LENGTH:
        dropped |= 1 << F_CONTENT_LENGTH    # none is allowed (section 8.6)
    if not w.options & KEEP_CHUNKED:
        dropped |= 1 << F_TRANSFER_ENCODING | 1 << F_TRAILER
    elif head.count[F_TRANSFER_ENCODING]:
        # framing.pyx has refused it; checked again here (R18)
        if head.count[F_TRANSFER_ENCODING] > 1:
            return -BAD_RESPONSE_FRAMING
        dropped |= 1 << F_CONTENT_LENGTH
    if head.count[F_TRAILER] and names_trailers(head, buf):
        dropped |= 1 << F_TRAILER
    if w.options & KEEP_UPGRADE:
        dropped &= ~<uint32_t>(1 << F_UPGRADE)
    o = copy_fields(o, head, buf, &listed, dropped, UNCOUNTED)
    return finish(w, o, head, date)


# Neither h11 nor llhttp reads an octet above 0x7f, and both read its encoding, which the URL
# standard says is the same path.
cdef char *put_encoded(char *o, const char *text, size_t n) noexcept nogil:
    cdef const char *digits = b"0123456789ABCDEF"
    cdef size_t i
    for i in range(n):
        if <uint8_t>text[i] < 0x80:
            o[0] = text[i]
            o += 1
            continue
        o[0] = c'%'
        o[1] = digits[<uint8_t>text[i] >> 4]
        o[2] = digits[text[i] & 15]
        o += 3
    return o


# Copies the fields that stay.
cdef char *copy_fields(char *o, const Head *head, const char *buf, const Listed *listed,
                       uint32_t dropped, int64_t hops) noexcept nogil:
    cdef const Field *field
    cdef uint32_t run = head.fields_start       # start of the lines not yet copied
    cdef uint32_t i
    dropped |= listed.known & ~<uint32_t>PROTECTED
    for i in range(head.n_fields):
        field = &head.fields[i]
        if (dropped >> field.name) & 1:
            pass
        elif field.name == F_OTHER:
            if listed.n == 0 or not is_listed(listed, buf, field):
                if head.lenient:
                    o = put_line(o, buf, field)
                    run = field.end
                continue
        elif field.name == F_CONTENT_LENGTH or field.name == F_TRANSFER_ENCODING:
            if i + 1 != head.first[field.name]:
                o = put(o, buf + run, field.start - run)
                run = field.end         # a repeated length
                continue
            if is_canonical(buf, field) and not head.lenient:
                continue
            o = put(o, buf + run, field.start - run)
            o = put_canonical(o, buf, field)
            run = field.end
            continue
        elif field.name == F_MAX_FORWARDS and hops != UNCOUNTED:
            o = put(o, buf + run, field.start - run)
            o = put(o, b"Max-Forwards: ", 14)
            o += put_number(o, <uint32_t>hops)
            o = put(o, b"\r\n", 2)
            run = field.end
            continue
        else:
            if head.lenient:
                o = put_line(o, buf, field)
                run = field.end
            continue
        o = put(o, buf + run, field.start - run)
        run = field.end
    return o if head.lenient else put(o, buf + run, head.length - 2 - run)


# Writes a field as it came, but with CRLF, because its line end may be a bare LF, and without
# white space before the colon (RFC 9112 section 5.1).
cdef char *put_line(char *o, const char *buf, const Field *field) noexcept nogil:
    if buf[field.start + field.name_len] == c':':
        o = put(o, buf + field.start, field.value + field.value_len - field.start)
    else:
        o = put(o, buf + field.start, field.name_len)
        o = put(o, b": ", 2)
        o = put(o, buf + field.value, field.value_len)
    return put(o, b"\r\n", 2)


cdef size_t build_regular_head(const Head *head, const char *buf, char *out) noexcept nogil:
    cdef char *o = put(out, buf + head.start, head.target + head.target_len - head.start)
    cdef uint32_t i
    o = put(o, b"\r\n", 2)
    for i in range(head.n_fields):
        o = put_line(o, buf, &head.fields[i])
    return put(o, b"\r\n", 2) - out


# Appends our own fields and the blank line. Returns the bytes of the whole head.
cdef int finish(const Writing *w, char *o, const Head *head, const char *date) noexcept nogil:
    if w.options & KEEP_UPGRADE:
        o = put(o, b"Connection: Upgrade\r\n", 21)
    elif w.options & ADD_CLOSE:
        o = put(o, b"Connection: close\r\n", 19)
    if date != NULL:
        o = put(o, b"Date: ", 6)
        o = put(o, date, DATE_BYTES)
        o = put(o, b"\r\n", 2)
    # Via has the version of the message that was received (RFC 9110 section 7.6.3).
    if w.pseudonym_len == 0:
        return put(o, b"\r\n", 2) - w.out
    if w.options & BY_HTTP2:
        o = put(o, b"Via: 2 ", 7)
    else:
        o = put(o, b"Via: 1.1 " if head.minor == HTTP_11 else b"Via: 1.0 ", 9)
    o = put(o, w.pseudonym, w.pseudonym_len)
    return put(o, b"\r\n\r\n", 4) - w.out


cdef inline char *put(char *o, const char *text, size_t n) noexcept nogil:
    memcpy(o, text, n)
    return o + n


# Merges all Connection and Proxy-Connection fields (R14). A member that is not a token names
# no field and is skipped. False: they name more than MAX_LISTED unknown fields.
cdef bint read_connection(Listed *listed, const Head *head, const char *buf) noexcept nogil:
    cdef uint32_t left = head.count[F_CONNECTION] + head.count[F_PROXY_CONNECTION]
    cdef const Field *field = &head.fields[0]
    cdef const char *at
    cdef const char *end
    cdef const char *member
    cdef size_t n
    cdef int name
    listed.known = 0
    listed.n = 0
    while left:
        if field.name == F_CONNECTION or field.name == F_PROXY_CONNECTION:
            left -= 1
            at = buf + field.value
            end = at + field.value_len
            while next_member(&at, end, &member, &n):
                if not is_token(member, n):
                    continue
                name = field_name(member, n)
                if name != F_OTHER:
                    listed.known |= 1 << name
                elif n != 5 or not equals_lower(member, b"close", 5):
                    if listed.n == MAX_LISTED:
                        return False
                    listed.at[listed.n] = member - buf
                    listed.length[listed.n] = n
                    listed.n += 1
        field += 1
    return True


cdef bint is_listed(const Listed *listed, const char *buf, const Field *field) noexcept nogil:
    cdef uint32_t i
    for i in range(listed.n):
        if (listed.length[i] == field.name_len
                and is_same(buf + listed.at[i], buf + field.start, field.name_len)):
            return True
    return False


# Is the field spelt as put_canonical would write it? If the next reader does not recognise an
# unusual spelling ("\tchunked", "007"), it sees another message than this proxy did.
cdef bint is_canonical(const char *buf, const Field *field) noexcept nogil:
    cdef const char *value = buf + field.value
    if (field.value != field.start + field.name_len + 2 or (value - 1)[0] != c' '
            or field.end != field.value + field.value_len + 2):
        return False
    if field.name == F_TRANSFER_ENCODING:
        return memcmp(value, b"chunked", 7) == 0
    return (value[0] != c'0' or field.value_len == 1) and (
        memchr(value, c',', field.value_len) == NULL)


cdef char *put_canonical(char *o, const char *buf, const Field *field) noexcept nogil:
    cdef const char *value = buf + field.value
    cdef uint32_t n = field.value_len
    cdef uint32_t i = 0
    if field.name == F_TRANSFER_ENCODING:
        return put(o, b"Transfer-Encoding: chunked\r\n", 28)
    while i < n and is_class(value[i], CC_DIGIT):   # of "5, 5", which only responses have
        i += 1
    n = i
    while n > 1 and value[0] == c'0':
        value += 1
        n -= 1
    o = put(o, b"Content-Length: ", 16)
    o = put(o, value, n)
    return put(o, b"\r\n", 2)


cdef bint is_offered(const Head *head, const char *buf, const Head *request,
                     const char *request_buf) noexcept nogil:
    cdef uint32_t at = 0
    cdef uint32_t offers = 0
    cdef const char *member
    cdef size_t n
    if head.count[F_UPGRADE] == 0:
        while next_offer(request, request_buf, &at, &member, &n):
            offers += 1
        return offers == 1
    while next_protocol(head, buf, &at, &member, &n):
        offers += 1
        if not has_protocol(request, request_buf, member, n):
            return False
    return offers != 0


# Protocol names are compared in any case, as browsers do.
cdef bint has_protocol(const Head *request, const char *request_buf, const char *name,
                       size_t n) noexcept nogil:
    cdef uint32_t at = 0
    cdef const char *member
    cdef size_t m
    while next_offer(request, request_buf, &at, &member, &m):
        if m == n and is_same(member, name, n):
            return True
    return False


cdef bint offers_upgrade(const Head *head, const char *buf) noexcept nogil:
    cdef uint32_t at = 0
    cdef const char *member
    cdef size_t n
    return next_offer(head, buf, &at, &member, &n)


# Writes one Upgrade field, without h2c. It is never longer than the fields that it replaces.
cdef char *put_offer(char *o, const Head *head, const char *buf) noexcept nogil:
    cdef const char *start = o
    cdef uint32_t at = 0
    cdef const char *member
    cdef size_t n
    while next_offer(head, buf, &at, &member, &n):
        o = put(o, b"Upgrade: ", 9) if o == start else put(o, b",", 1)
        o = put(o, member, n)
    return o if o == start else put(o, b"\r\n", 2)


# Finds the next protocol in the Upgrade fields that may be sent on.
cdef bint next_offer(const Head *head, const char *buf, uint32_t *at, const char **member,
                     size_t *n) noexcept nogil:
    while next_protocol(head, buf, at, member, n):
        if not (n[0] >= 3 and equals_lower(member[0], b"h2c", 3) and (
                n[0] == 3 or member[0][3] == c'/')):
            return True
    return False


# Finds the next member of the Upgrade fields. `*at` is the offset in buf at which the last one
# ended, 0 before the first.
cdef bint next_protocol(const Head *head, const char *buf, uint32_t *at, const char **member,
                        size_t *n) noexcept nogil:
    cdef const Field *field
    cdef const char *p
    cdef const char *end
    cdef uint32_t i
    if head.count[F_UPGRADE] == 0:
        return False
    for i in range(head.first[F_UPGRADE] - 1, head.n_fields):
        field = &head.fields[i]
        if field.name != F_UPGRADE or field.value + field.value_len <= at[0]:
            continue
        p = buf + max(field.value, at[0])
        end = buf + field.value + field.value_len
        if next_member(&p, end, member, n):
            at[0] = p - buf
            return True
    return False
