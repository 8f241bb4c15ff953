# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Request targets: bytes -> canonical host, port, path (R16, R25; RFC 9112 section 3.2)."""

from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp
from cutthrough.outcome cimport BAD_REQUEST, BAD_TARGET, label_of
from cutthrough.wire.authority cimport (
    HOST_NAME, MAX_HOST, build_authority, is_uri_host, parse_authority)
from cutthrough.wire.chars cimport equals_lower, text_of
from cutthrough.wire.http1 cimport Field, HTTP_11, HeadLimits, MAX_FIELDS, parse_request
from cutthrough.wire.names cimport F_HOST, F_UPGRADE, M_CONNECT, M_OPTIONS


cdef int read_target(Target *target, const Head *head, const char *buf,
                     bint inside) noexcept nogil:
    cdef const char *text = buf + head.target
    cdef size_t n = head.target_len
    cdef const char *authority
    cdef const char *end = text + n
    cdef const char *p
    cdef const Field *host = NULL

    # RFC 9112 section 3.2: exactly one Host in HTTP/1.1, never two.
    if head.count[F_HOST] == 1:
        host = &head.fields[head.first[F_HOST] - 1]
    elif head.count[F_HOST] > 1 or head.minor == HTTP_11:
        return -BAD_REQUEST
    # A fragment is for the client alone (RFC 9110 section 7.1).
    if memchr(text, c'#', n) != NULL:
        return -BAD_TARGET
    target.path = head.target + n
    target.path_len = 0

    if head.method == M_CONNECT:
        target.form = FORM_AUTHORITY
        if parse_authority(target, text, n, 0) != 0:
            return -BAD_TARGET
        return check_host(host, buf, text, n)

    authority = behind_scheme(target, head, text, inside)
    if authority != NULL:
        p = authority
        while p < end and p[0] != c'/' and p[0] != c'?':
            p += 1
        target.path = p - buf
        target.path_len = end - p
        if parse_authority(target, authority, p - authority, 80) != 0:
            return -BAD_TARGET
        return check_host(host, buf, authority, p - authority)

    if text[0] == c'/':
        target.form = FORM_ORIGIN
    elif n == 1 and text[0] == c'*' and head.method == M_OPTIONS:
        target.form = FORM_ASTERISK
    else:
        return -BAD_TARGET      # another scheme, authority form without CONNECT, a bare word
    target.path = head.target
    target.path_len = n
    # In these forms the Host field is the authority (RFC 9110 section 7.1).
    if host == NULL:
        if target.form == FORM_ASTERISK:
            return -BAD_TARGET  # "*" of which server? The request does not name one
        target.host_kind = HOST_NAME
        target.host_len = 0
        target.host[0] = 0
        target.port = 80
        return 0
    if parse_authority(target, buf + host.value, host.value_len, 80) != 0:
        return -BAD_REQUEST
    return 0


# Sets `form`. NULL: the target is not in absolute form. "ws:" is of a client that sends its URL
# as it is.
cdef const char *behind_scheme(Target *target, const Head *head, const char *text,
                               bint inside) noexcept nogil:
    cdef uint32_t n = head.target_len
    target.form = FORM_ABSOLUTE
    if n > 7 and equals_lower(text, b"http://", 7):
        return text + 7
    if n > 5 and head.count[F_UPGRADE] and equals_lower(text, b"ws://", 5):
        return text + 5
    target.form = FORM_SECURE
    return text + 8 if inside and n > 8 and equals_lower(text, b"https://", 8) else NULL


# The target wins and the received Host is ignored (RFC 9112 section 3.2.2), so Host need not be
# reachable. But section 3.2 requires an invalid one to be refused: uri-host [ ":" port ] as in
# RFC 3986. Returns 0 or -BAD_REQUEST.
cdef int check_host(const Field *host, const char *buf, const char *authority,
                    size_t n) noexcept nogil:
    # Nearly every client repeats the authority, which has been read already.
    if host == NULL or (host.value_len == n and memcmp(buf + host.value, authority, n) == 0):
        return 0
    return 0 if is_uri_host(buf + host.value, host.value_len) else -BAD_REQUEST


# For Python: patterns of the policy, and `explain`.

def read_authority(source, default_port=0):
    """Returns a dict of host, kind, address, port and text, or a refusal's label."""
    cdef Target target
    cdef size_t n
    cdef const char *text = text_of(source, &n)
    cdef int length = parse_authority(&target, text, n, default_port)
    if length < 0:
        return label_of(-length).decode()
    return describe(&target, default_port)


def read_request_target(source):
    """Like read_authority, with form and path, for a whole, valid request head."""
    cdef Head head
    cdef Target target
    cdef HeadLimits limits = HeadLimits(65536, 65536, MAX_FIELDS)
    cdef size_t n
    cdef const char *buf = text_of(source, &n)
    if parse_request(&head, buf, n, 0, &limits) <= 0:
        raise ValueError("not a whole, valid request head")
    cdef int length = read_target(&target, &head, buf, False)
    if length < 0:
        return label_of(-length).decode()
    return describe(&target, 80) | {
        "form": ("origin", "absolute", "authority", "asterisk", "secure")[target.form],
        "path": buf[target.path:target.path + target.path_len]}


cdef dict describe(const Target *target, int default_port):
    cdef char text[MAX_HOST + 9]
    cdef int n = build_authority(text, target, default_port)
    kind = ("name", "ipv4", "ipv6")[target.host_kind]
    length = {"name": 0, "ipv4": 4, "ipv6": 16}[kind]
    return {"host": target.host[:target.host_len].decode(), "kind": kind, "port": target.port,
            "address": (<const char *>target.address)[:length], "text": text[:n].decode()}
