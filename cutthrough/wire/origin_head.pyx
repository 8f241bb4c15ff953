# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""A rewritten request head for a server of a named origin: its path, Host, the forwarded fields.

    Host: api.local               ->  Host: 10.0.0.5:8000
    X-Forwarded-For: 1.2.3.4      ->  X-Forwarded-For: 192.0.2.7
                                      X-Forwarded-Host: api.local
                                      X-Forwarded-Proto: https
                                      X-Forwarded-Port: 443
                                      Forwarded: for=192.0.2.7;host="api.local";proto=https

If the sender is trusted, our address follows those that it names, in one line, and its Host, Proto
and Port stay: the first proxy knows them. All other fields stay, and so does the head itself,
because a second attempt may go another way.
"""

from libc.string cimport memchr, memcpy
from cutthrough.wire.chars cimport equals_lower
from cutthrough.wire.connect cimport Value

cdef enum:
    OUR_FIELDS = 384            # names, line ends, and three spellings of an address


cdef size_t build_origin_head(char *out, size_t cap, const char *head, size_t n,
                              const OriginHead *how) noexcept nogil:
    cdef const char *end = head + n - 2         # the empty line
    cdef const char *line = <const char *>memchr(head, c'\n', n) + 1
    cdef const char *behind
    cdef Value asked = first_value(line, end, b"host", 4)
    cdef char *o = out
    if cap < n + how.host.n + 2 * asked.n + how.prefix.n + OUR_FIELDS:
        return 0
    o = put_first(o, head, line, how)
    while line < end:
        behind = <const char *>memchr(line, c'\n', end - line) + 1
        if how.host.text != NULL and is_field(line, behind, b"host", 4):
            o = put_value(put(o, b"Host: ", 6), how.host)
            o = put(o, b"\r\n", 2)
        elif not how.forwarded or not is_forwarded(line, behind):
            o = put(o, line, behind - line)
        line = behind
    line = <const char *>memchr(head, c'\n', n) + 1
    if how.forwarded & FORWARDED_X:
        o = put_x(o, line, end, asked, how)
    if how.forwarded & FORWARDED_ELEMENT:
        o = put_element(o, line, end, asked, how)
    return put(o, b"\r\n", 2) - out


# The first line. A path begins with a slash, also if nothing is left of it.
cdef char *put_first(char *o, const char *head, const char *line,
                     const OriginHead *how) noexcept nogil:
    cdef const char *rest = head + how.replaced_at + how.replaced
    if how.prefix.n == 0 and how.replaced == 0:
        return put(o, head, line - head)
    o = put_value(put(o, head, how.replaced_at), how.prefix)
    if rest[0] != c'/' and how.prefix.n == 0:
        o = put(o, b"/", 1)
    return put(o, rest, line - rest)


cdef char *put_x(char *o, const char *line, const char *end, Value asked,
                 const OriginHead *how) noexcept nogil:
    cdef Value known
    o = put(o, b"X-Forwarded-For: ", 17)
    if how.is_trusted:
        o = put_list(o, line, end, b"x-forwarded-for", 15)
    if how.client.n:
        o = put_value(o, how.client)
    else:
        o = put(o, b"unknown", 7)
    known = first_value(line, end, b"x-forwarded-host", 16) if how.is_trusted else Value(NULL, 0)
    o = put_value(put(o, b"\r\nX-Forwarded-Host: ", 20), known if known.n else asked)
    known = first_value(line, end, b"x-forwarded-proto", 17) if how.is_trusted else Value(NULL, 0)
    o = put(o, b"\r\nX-Forwarded-Proto: ", 21)
    o = put_value(o, known) if known.n else put_scheme(o, how.is_tls)
    known = first_value(line, end, b"x-forwarded-port", 16) if how.is_trusted else Value(NULL, 0)
    o = put(o, b"\r\nX-Forwarded-Port: ", 20)
    o = put_value(o, known if known.n else port_of(asked, how.is_tls))
    return put(o, b"\r\n", 2)


# The port of a Host as `build_authority` writes it; without one that of the scheme.
cdef Value port_of(Value host, bint is_tls) noexcept nogil:
    cdef size_t at = host.n
    while at and c'0' <= host.text[at - 1] <= c'9':
        at -= 1
    if at and at < host.n and host.text[at - 1] == c':':
        return Value(host.text + at, host.n - at)
    return Value(b"443", 3) if is_tls else Value(b"80", 2)


# RFC 7239 section 4: IPv6 stands in brackets and quotes, and so does a host with a port.
cdef char *put_element(char *o, const char *line, const char *end, Value asked,
                       const OriginHead *how) noexcept nogil:
    o = put(o, b"Forwarded: ", 11)
    if how.is_trusted:
        o = put_list(o, line, end, b"forwarded", 9)
    o = put(o, b"for=", 4)
    if how.client.n == 0:
        o = put(o, b"unknown", 7)
    elif how.is_ipv6:
        o = put(put_value(put(o, b'"[', 2), how.client), b']"', 2)
    else:
        o = put_value(o, how.client)
    o = put(put_value(put(o, b';host="', 7), asked), b'";proto=', 8)
    return put(put_scheme(o, how.is_tls), b"\r\n", 2)


# The values of all fields of this name, with a comma behind each.
cdef char *put_list(char *o, const char *line, const char *end, const char *name,
                    size_t n) noexcept nogil:
    cdef const char *behind
    cdef Value value
    while line < end:
        behind = <const char *>memchr(line, c'\n', end - line) + 1
        if is_field(line, behind, name, n):
            value = value_of(line, behind, n)
            if value.n:
                o = put(put_value(o, value), b", ", 2)
        line = behind
    return o


cdef Value first_value(const char *line, const char *end, const char *name,
                       size_t n) noexcept nogil:
    cdef const char *behind
    while line < end:
        behind = <const char *>memchr(line, c'\n', end - line) + 1
        if is_field(line, behind, name, n):
            return value_of(line, behind, n)
        line = behind
    return Value(NULL, 0)


cdef Value value_of(const char *line, const char *behind, size_t n) noexcept nogil:
    cdef const char *p = line + n + 1
    cdef const char *end = behind - 2           # without CRLF
    while p < end and (p[0] == c' ' or p[0] == c'\t'):
        p += 1
    while end > p and ((end - 1)[0] == c' ' or (end - 1)[0] == c'\t'):
        end -= 1
    return Value(p, end - p)


cdef bint is_field(const char *line, const char *behind, const char *name,
                   size_t n) noexcept nogil:
    return <size_t>(behind - line) > n and line[n] == c':' and equals_lower(line, name, n)


# What a server might believe about the client, in any of the spellings in use.
cdef bint is_forwarded(const char *line, const char *behind) noexcept nogil:
    return is_field(line, behind, b"forwarded", 9) or is_field(
        line, behind, b"x-real-ip", 9) or (
        behind - line > 12 and equals_lower(line, b"x-forwarded-", 12))


cdef inline char *put_scheme(char *o, bint is_tls) noexcept nogil:
    return put(o, b"https", 5) if is_tls else put(o, b"http", 4)


cdef inline char *put_value(char *o, Value value) noexcept nogil:
    return put(o, value.text, value.n)


cdef inline char *put(char *o, const char *text, size_t n) noexcept nogil:
    memcpy(o, text, n)
    return o + n
