# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""How long is the body? RFC 9112 section 6.3, without repair (R5, R7, R8, R11, R17, R18).

Two ways to read a length mean two readers that disagree, so whatever leaves a choice is
refused: both length fields, either of them twice, a coding beside chunked, a length where
none may stand. Of a response equal lengths are one, and a coding on a 204 or 304 is dropped
and ends the connection (R18). How chunks are read is chunks.pyx.
"""

from libc.stdint cimport INT64_MAX, int64_t, uint32_t
from cutthrough.outcome cimport (
    BAD_FRAMING, BAD_RESPONSE_FRAMING, UNSUPPORTED_CODING, label_of)
from cutthrough.wire.chars cimport (
    CC_DIGIT, equals_lower, is_class, is_name, is_token, next_member, text_of)
from cutthrough.wire.chunks cimport NOT_IN_TRAILERS
from cutthrough.wire.http1 cimport (
    HTTP_10, HTTP_11, Field, HeadLimits, MAX_FIELDS, has_token, parse_request,
    parse_response)
from cutthrough.wire.names cimport (
    F_CONNECTION, F_CONTENT_LENGTH, F_PROXY_CONNECTION, F_TRANSFER_ENCODING, M_CONNECT,
    M_HEAD, M_TRACE, field_name)


cdef int read_request_framing(const Head *head, const char *buf, Framing *out) noexcept nogil:
    cdef int refused
    out.kind = BODY_NONE
    out.length = 0
    out.trailers = False
    out.persistent = head.minor == HTTP_11 and not says_close(head, buf)
    # The common request has neither field, and so no body (rule 7).
    if head.count[F_CONTENT_LENGTH] + head.count[F_TRANSFER_ENCODING] == 0:
        return 0
    refused = read_length_fields(head, buf, out, False)
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
    out.persistent = head.minor == HTTP_11 and not head.lenient and not says_close(head, buf)
    # RFC 9112 section 6.3, rule 2: such a response ends with its head, and both fields
    # are ignored in it.
    if request_method == M_CONNECT and 200 <= head.status <= 299:
        return 0
    # Rule 1 and RFC 9110 section 15.4.5: no content, whatever the field says. What stands
    # there was meant as something else, and so may be what follows.
    if (head.status == 204 or head.status == 304) and head.count[F_TRANSFER_ENCODING] == fields:
        out.persistent = out.persistent and fields == 0
        return 0
    if fields and read_length_fields(head, buf, out, True) != 0:
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
cdef int read_length_fields(const Head *head, const char *buf, Framing *out,
                            bint response) noexcept nogil:
    cdef int at = head.first[F_TRANSFER_ENCODING]
    cdef const Field *field
    if at:
        # HTTP/1.0 has no transfer codings: a peer of that version reads a body that ends
        # with the connection (R5). With a Content-Length there are two readings (R7).
        if head.minor == HTTP_10 or head.count[F_CONTENT_LENGTH]:
            return -BAD_FRAMING
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


# RFC 9112 section 6.3, rule 5: of a response, a length that is said several times, in one
# field or several, is that length, for all readers take it from one of them. Else -1.
cdef int64_t read_equal_lengths(const Head *head, const char *buf) noexcept nogil:
    cdef uint32_t left = head.count[F_CONTENT_LENGTH]
    cdef const Field *field = head.fields + head.first[F_CONTENT_LENGTH] - 1
    cdef const char *at
    cdef const char *end
    cdef const char *member
    cdef size_t n
    cdef int64_t length = -1, found
    while left:
        if field.name == F_CONTENT_LENGTH:
            left -= 1
            at = buf + field.value
            end = at + field.value_len
            if field.value_len == 0 or (end - 1)[0] == c',' or at[0] == c',':
                return -1
            while next_member(&at, end, &member, &n):
                found = parse_length(member, n)
                if found < 0 or (length >= 0 and found != length):
                    return -1
                length = found
        field += 1
    return length


# 1*DIGIT, at most INT64_MAX, with zeros in front or not; -1 if it is anything else (R11).
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


# If Connection names a trailer, all of them go: trailers may be discarded on the way (RFC
# 9110 section 6.5.1). What never goes on in trailers does not count ("keep-alive" and "TE"
# are in many a list), nor what is no token and so names no field.
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
    cdef bytearray copy
    cdef int got
    if request_method is None:
        got = parse_request(&head, buf, n, 0, &limits)
    else:
        copy = bytearray(buf[:n])
        buf = copy
        got = parse_response(&head, <char *>buf, n, 0, &limits)
    if got <= 0:
        raise ValueError("not a whole, valid head")
    if request_method is None:
        return read_request_framing(&head, buf, out)
    return read_response_framing(&head, buf, request_method, out)
