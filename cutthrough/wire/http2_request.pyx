# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fields of an HTTP/2 request -> the head of HTTP/1.1 that says the same.

    :method GET  :scheme http  :authority a.b  :path /c      GET http://a.b/c HTTP/1.1
                                                             Host: a.b
    :method GET  :scheme https :authority a.b  :path /c      GET /c HTTP/1.1
                                                             Host: a.b
    :method CONNECT            :authority a.b:443            CONNECT a.b:443 HTTP/1.1
                                                             Host: a.b:443

A request with the scheme https is one for this server itself, as the origin form is, because no
client sends a proxy the plain text of an https URL. Other schemes stay in the absolute form, and
the reader of targets refuses them.

Everything that HTTP/1.1 would read in another way is refused (R62). If a request breaks the form
of HTTP/2, it is malformed, and costs the stream (RFC 9113 section 8.1.1): a pseudo-field that is
missing, unknown or in its wrong place, a field that speaks of the connection, a name in upper
case. If it could be read, it is invalid, and is answered: an octet that ends a line or a word, a
Host that differs from :authority. The rest is left to the readers of HTTP/1.1, which judge the head
that stands here: the target, the length of the body, the limits.

If the head has a length and announces trailers, which HTTP/1.1 cannot do, the length is left out, and
the body is chunked; the caller still compares it with the length.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memcmp, memset
from cutthrough.wire.chars cimport CC_TARGET, CC_TOKEN, equals_lower, is_class, is_token
from cutthrough.wire.framing cimport parse_length
from cutthrough.wire.http2_fields cimport (
    Output, Record, Text, is_value, is_well_formed, next_field, next_trimmed, put, put_line,
    put_text)
from cutthrough.wire.names cimport (
    F_CONTENT_LENGTH, F_HOST, F_TE, F_TRAILER, M_CONNECT, M_OTHER, field_name, method_of)

# What is read before the first line can be written.
cdef struct Request:
    Text method
    Text scheme
    Text authority
    Text path
    Text host
    Text protocol           # of an extended CONNECT (RFC 8441)
    size_t lengths          # Content-Length fields
    size_t cookies
    bint announces          # trailers


cdef int build_request_of_http2(char *out, size_t room, const char *records, size_t n, bint ends,
                                Http2Request *about) noexcept nogil:
    cdef Request request
    cdef Output to = Output(out, out + room, False)
    cdef int refused
    about.method = M_OTHER
    about.is_tunnel = about.is_chunked = False
    about.length = -1
    refused = read_fields(&request, records, n, about)
    if refused:
        return refused
    if request.protocol.data != NULL:
        return HEAD_EXTENDED
    if request.authority.data == NULL:
        request.authority = request.host        # from a request of HTTP/1.1 (section 8.3.1)
    elif request.host.data != NULL and not is_same_host(&request.authority, &request.host):
        return HEAD_INVALID
    if request.authority.data == NULL:
        return HEAD_INVALID
    if ends and about.length > 0 and not about.is_tunnel:
        return HEAD_MALFORMED                   # section 8.1.1
    put_request_line(&to, &request, about.is_tunnel)
    put(&to, b"Host: ", 6)
    put_text(&to, &request.authority)
    put(&to, b"\r\n", 2)
    about.is_chunked = not ends and not about.is_tunnel and (
        request.lengths == 0 or (about.length >= 0 and request.announces))
    put_fields(&to, records, n, about.is_chunked)
    if request.cookies:
        put_cookies(&to, records, n)
    if about.is_chunked:
        put(&to, b"Transfer-Encoding: chunked\r\n", 28)
    put(&to, b"Connection: close\r\n\r\n", 21)
    return 0 if to.full else <int>(to.at - out)


# --- reading


cdef int read_fields(Request *request, const char *records, size_t n,
                     Http2Request *about) noexcept nogil:
    """0, or a Http2Refusal. Pseudo-fields come first, each at most once."""
    cdef const char *p = records
    cdef const char *next
    cdef Record field
    cdef Text *place
    cdef bint regular = False
    cdef bint well = True
    cdef bint valid = True
    memset(request, 0, sizeof(Request))
    while p < records + n:
        next = next_trimmed(p, &field)
        if field.name.n and field.name.data[0] == c':':
            next_field(p, &field)               # not trimmed
            p = next
            place = place_of(request, &field.name)
            if regular or place == NULL or place.data != NULL:
                well = False
                continue
            place[0] = field.value
            continue
        p = next
        regular = True
        if not is_well_formed(&field):
            well = False
        elif not is_value(&field.value) or not note_field(request, &field, about):
            valid = False
    if request.method.data == NULL or not is_token(request.method.data, request.method.n):
        return HEAD_MALFORMED
    about.method = <unsigned char>method_of(request.method.data, request.method.n)
    about.is_tunnel = about.method == M_CONNECT and request.protocol.data == NULL
    if about.is_tunnel != (request.scheme.data == NULL) or (
            about.is_tunnel != (request.path.data == NULL)) or (
            request.path.data != NULL and request.path.n == 0):
        return HEAD_MALFORMED                   # section 8.3.1, 8.5
    if not well:
        return HEAD_MALFORMED
    return 0 if valid and has_valid_parts(request) else HEAD_INVALID


cdef bint note_field(Request *request, const Record *field, Http2Request *about) noexcept nogil:
    """False: it is invalid beside those before it."""
    cdef int number = field_name(field.name.data, field.name.n)
    if number == F_CONTENT_LENGTH:
        request.lengths += 1
        # If there are two, the reader of HTTP/1.1 refuses the request: no body has their length
        about.length = parse_length(field.value.data, field.value.n) if (
            request.lengths == 1) else -1
    elif number == F_HOST:
        if request.host.data != NULL:
            return False
        request.host = field.value
    elif number == F_TRAILER:
        request.announces |= field.value.n != 0
    elif is_cookie(&field.name):
        request.cookies += 1
    return True


cdef Text *place_of(Request *request, const Text *name) noexcept nogil:
    """NULL: no pseudo-field of a request (section 8.3.1)."""
    if name.n == 7 and memcmp(name.data, b":method", 7) == 0:
        return &request.method
    if name.n == 7 and memcmp(name.data, b":scheme", 7) == 0:
        return &request.scheme
    if name.n == 10 and memcmp(name.data, b":authority", 10) == 0:
        return &request.authority
    if name.n == 5 and memcmp(name.data, b":path", 5) == 0:
        return &request.path
    if name.n == 9 and memcmp(name.data, b":protocol", 9) == 0:
        return &request.protocol
    return NULL


cdef bint has_valid_parts(const Request *request) noexcept nogil:
    """None may have an octet that ends its part, because the target is put together of them."""
    cdef size_t i
    cdef char c
    if request.scheme.data != NULL:
        if request.scheme.n == 0:
            return False
        for i in range(request.scheme.n):
            c = request.scheme.data[i]
            if not is_class(c, CC_TOKEN) or not (c | 0x20 >= c'a' and c | 0x20 <= c'z') and not (
                    i and (c >= c'0' and c <= c'9' or c == c'+' or c == c'-' or c == c'.')):
                return False
    if request.path.data != NULL:
        if not (request.path.n and request.path.data[0] == c'/' or is_asterisk(&request.path)):
            return False
        for i in range(request.path.n):
            if not is_class(request.path.data[i], CC_TARGET) and (
                    <uint8_t>request.path.data[i] < 0x80):
                return False
    return is_authority(&request.authority) and is_authority(&request.host)


cdef bint is_authority(const Text *text) noexcept nogil:
    """Whether it is absent, or no part but an authority, without a user (section 8.3.1)."""
    cdef size_t i
    cdef char c
    if text.data == NULL:
        return True
    for i in range(text.n):
        c = text.data[i]
        if not is_class(c, CC_TARGET) or c == c'/' or c == c'?' or c == c'#' or c == c'@' or (
                c == c'\\'):
            return False
    return text.n != 0


cdef inline bint is_asterisk(const Text *path) noexcept nogil:
    return path.n == 1 and path.data[0] == c'*'


cdef bint is_same_host(const Text *a, const Text *b) noexcept nogil:
    cdef size_t i
    if a.n != b.n:
        return False
    for i in range(a.n):
        if (a.data[i] | 0x20 if a.data[i] >= c'A' and a.data[i] <= c'Z' else a.data[i]) != (
                b.data[i] | 0x20 if b.data[i] >= c'A' and b.data[i] <= c'Z' else b.data[i]):
            return False
    return True


cdef inline bint is_cookie(const Text *name) noexcept nogil:
    return name.n == 6 and memcmp(name.data, b"cookie", 6) == 0


# --- writing


cdef void put_request_line(Output *out, const Request *request, bint is_tunnel) noexcept nogil:
    put_text(out, &request.method)
    put(out, b" ", 1)
    if is_tunnel:
        put_text(out, &request.authority)
    elif request.scheme.n == 5 and equals_lower(request.scheme.data, b"https", 5):
        put_text(out, &request.path)
    else:
        put_text(out, &request.scheme)
        put(out, b"://", 3)
        put_text(out, &request.authority)
        if not is_asterisk(&request.path):      # RFC 9112 section 3.2.4
            put_text(out, &request.path)
    put(out, b" HTTP/1.1\r\n", 11)


cdef void put_fields(Output *out, const char *records, size_t n, bint is_chunked) noexcept nogil:
    cdef const char *p = records
    cdef Record field
    cdef int number
    while p < records + n:
        p = next_trimmed(p, &field)
        if field.name.data[0] == c':' or is_cookie(&field.name):
            continue
        number = field_name(field.name.data, field.name.n)
        if number == F_HOST or number == F_TE or (  # TE is of the connection in HTTP/1.1
                number == F_CONTENT_LENGTH and is_chunked):
            continue
        put_line(out, &field)


cdef void put_cookies(Output *out, const char *records, size_t n) noexcept nogil:
    """All of them in one field: section 8.2.3."""
    cdef const char *p = records
    cdef Record field
    cdef bint first = True
    put(out, b"cookie: ", 8)
    while p < records + n:
        p = next_trimmed(p, &field)
        if is_cookie(&field.name):
            if not first:
                put(out, b"; ", 2)
            first = False
            put_text(out, &field.value)
    put(out, b"\r\n", 2)
