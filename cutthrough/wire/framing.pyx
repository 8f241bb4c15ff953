# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""How long is the body? RFC 9112 section 6.3, without repair (R5, R7, R8, R11, R17, R18).

Every ambiguity of a request is refused, because two readers will disagree if a length can be
read in two ways: both length fields, either field twice, a coding beside chunked, a length that
is not allowed. A response is read as RFC 9112 asks, if there is one reading: equal lengths count
as one, chunks count before a length and in HTTP/1.0, and 1xx, 204, 304 and the response to
HEAD end with their head. If its fields contradict each other or its status, they are not sent
on as they came, and the connection carries no other message (R18). chunks.pyx reads the chunks
themselves.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from cutthrough.outcome cimport BAD_FRAMING, BAD_RESPONSE_FRAMING, UNSUPPORTED_CODING
from cutthrough.wire.chars cimport (
    CC_DIGIT, equals_lower, is_class, is_name, is_token, next_member)
from cutthrough.wire.chunks cimport NOT_IN_TRAILERS
from cutthrough.wire.http1 cimport HTTP_10, HTTP_11, Field, has_token
from cutthrough.wire.names cimport (
    F_CONNECTION, F_CONTENT_LENGTH, F_PROXY_CONNECTION, F_TRANSFER_ENCODING, M_CONNECT,
    M_HEAD, M_TRACE, field_name)


cdef int read_request_framing(const Head *head, const char *buf, Framing *out) noexcept nogil:
    cdef int refused
    out.kind = BODY_NONE
    out.length = 0
    out.trailers = False
    out.persistent = head.minor == HTTP_11 and not has_close(head, buf)
    # The common request has neither field, and so no body (rule 7).
    if head.count[F_CONTENT_LENGTH] + head.count[F_TRANSFER_ENCODING] == 0:
        return 0
    refused = read_length_fields(head, buf, out, False)
    if refused:
        return refused
    # Content of CONNECT has no meaning, because the tunnel begins here (R2). A reader may not look
    # for content of TRACE, because TRACE must not have it (RFC 9110 section 9.3.8).
    if (head.method == M_CONNECT or head.method == M_TRACE) and out.kind != BODY_NONE:
        return -BAD_FRAMING
    return 0


cdef int read_response_framing(const Head *head, const char *buf, int request_method,
                               Framing *out) noexcept nogil:
    cdef int fields = head.count[F_CONTENT_LENGTH] + head.count[F_TRANSFER_ENCODING]
    out.kind = BODY_NONE
    out.length = 0
    out.trailers = out.contradicts = False
    out.persistent = head.minor == HTTP_11 and not head.lenient and not has_close(head, buf)
    # RFC 9112 section 6.3, rule 2: a 2xx to CONNECT ends with its head, and both fields are
    # ignored.
    if request_method == M_CONNECT and 200 <= head.status <= 299:
        return 0
    if (head.status < 200 or head.status == 204 or head.status == 304
            or request_method == M_HEAD):
        if fields:
            read_meaningless(head, buf, out)
    elif fields == 0:
        out.kind = BODY_UNTIL_CLOSE
        out.persistent = False
    elif read_length_fields(head, buf, out, True) != 0:
        return -BAD_RESPONSE_FRAMING
    if out.contradicts:
        out.persistent = False
    return 0


# Rule 1: the response ends with its head, whatever the fields say. Those of a 304 or of the
# response to HEAD describe what GET would get; other statuses allow no field but a length of
# zero, which is common (RFC 9110 section 8.6). If the fields say anything else, octets may
# follow that belong to no response.
cdef void read_meaningless(const Head *head, const char *buf, Framing *out) noexcept nogil:
    if read_length_fields(head, buf, out, True) != 0:
        out.contradicts = True
    elif head.status < 200 or head.status == 204:
        out.contradicts = out.contradicts or out.kind != BODY_NONE
    elif head.status == 304:
        out.contradicts = out.contradicts or head.count[F_TRANSFER_ENCODING] != 0
    out.kind = BODY_NONE
    out.length = 0
    out.trailers = False


# RFC 9112 section 9.3. It does not mention Proxy-Connection, but a peer that sends "close"
# in it will close.
cdef bint has_close(const Head *head, const char *buf) noexcept nogil:
    if head.count[F_CONNECTION] and has_token(head, buf, F_CONNECTION, b"close", 5):
        return True
    return (head.count[F_PROXY_CONNECTION]
            and has_token(head, buf, F_PROXY_CONNECTION, b"close", 5))


# Sets kind and length and returns 0, or minus the Outcome as for requests.
cdef int read_length_fields(const Head *head, const char *buf, Framing *out,
                            bint response) noexcept nogil:
    cdef int at = head.first[F_TRANSFER_ENCODING]
    cdef const Field *field
    if at:
        # HTTP/1.0 has no transfer codings: a 1.0 peer would read until the connection ends
        # (R5). If there is a Content-Length too, there are two readings (R7). In a response chunks
        # win (RFC 9112 section 6.3, rule 3), and the client gets nothing but chunks.
        if head.minor == HTTP_10 or head.count[F_CONTENT_LENGTH]:
            if not response:
                return -BAD_FRAMING
            out.contradicts = True
        out.trailers = not names_trailers(head, buf)
        return read_codings(head, buf, out)
    if response:
        out.length = read_equal_lengths(head, buf)
    elif head.count[F_CONTENT_LENGTH] != 1:
        return -BAD_FRAMING
    else:
        field = &head.fields[head.first[F_CONTENT_LENGTH] - 1]
        out.length = parse_length(buf + field.value, field.value_len)
    if out.length < 0:
        return -BAD_FRAMING
    out.kind = BODY_LENGTH if out.length else BODY_NONE
    return 0


# Accepts exactly one field that is exactly "chunked" (R8). Unknown codings before a last
# "chunked" are 501, everything else is 400 (RFC 9112 sections 6.1 and 6.3).
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


# RFC 9112 section 6.3, rule 5: if a response repeats a length, in one field or in several,
# that is its length, because every reader takes one of them. -1: they differ, or are invalid.
cdef int64_t read_equal_lengths(const Head *head, const char *buf) noexcept nogil:
    cdef uint32_t left = head.count[F_CONTENT_LENGTH]
    cdef const Field *field = head.fields + head.first[F_CONTENT_LENGTH] - 1
    cdef const char *at
    cdef const char *end
    cdef const char *member
    cdef size_t n
    cdef int64_t length = -1, value
    while left:
        if field.name == F_CONTENT_LENGTH:
            left -= 1
            at = buf + field.value
            end = at + field.value_len
            if field.value_len == 0 or (end - 1)[0] == c',' or at[0] == c',':
                return -1
            while next_member(&at, end, &member, &n):
                value = parse_length(member, n)
                if value < 0 or (length >= 0 and value != length):
                    return -1
                length = value
        field += 1
    return length


# Parses 1*DIGIT, at most INT64_MAX, leading zeros allowed; -1: anything else (R11).
cdef int64_t parse_length(const char *p, size_t n) noexcept nogil:
    cdef int64_t length = 0
    cdef size_t i
    if n < 1:
        return -1
    for i in range(n):
        if not is_class(p[i], CC_DIGIT):
            return -1
        if length > (INT64_MAX - (p[i] - c'0')) // 10:
            return -1
        length = length * 10 + (p[i] - c'0')
    return length


# If Connection names a trailer, all trailers are dropped, as any hop may do (RFC 9110 section
# 6.5.1). Names in NOT_IN_TRAILERS do not count, because many lists have "keep-alive" and "TE";
# members that are not tokens do not count, because they name no field.
cdef bint names_trailers(const Head *head, const char *buf) noexcept nogil:
    cdef uint32_t left = head.count[F_CONNECTION] + head.count[F_PROXY_CONNECTION]
    cdef const Field *field = &head.fields[0]
    cdef const char *at
    cdef const char *end
    cdef const char *member
    cdef size_t n
    while left:
        if field.name == F_CONNECTION or field.name == F_PROXY_CONNECTION:
            left -= 1
            at = buf + field.value
            end = at + field.value_len
            while next_member(&at, end, &member, &n):
                if n == 5 and equals_lower(member, b"close", 5):
                    continue
                if is_token(member, n) and not (
                        NOT_IN_TRAILERS >> field_name(member, n) & 1):
                    return True
        field += 1
    return False
