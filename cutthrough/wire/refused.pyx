# cython: language_level=3
"""The description of a refused target, for the client and for logs (R37)."""

from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp, memcpy
from cutthrough.wire.chars cimport CC_HOST, equals_lower, is_class
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.names cimport M_CONNECT
from cutthrough.wire.reply cimport (
    HTTPS_TARGET, NO_HINT, NO_PORT, OTHER_SCHEME, USERINFO)
from cutthrough.wire.authority cimport Target, parse_authority

cdef extern from "<string.h>" nogil:
    void *memmem(const void *text, size_t n, const void *needle, size_t needle_len)


cdef int hint_of(const Head *head, const char *buf) noexcept nogil:
    cdef const char *text = buf + head.target
    cdef size_t n = head.target_len
    if memchr(text, c'@', n) != NULL:
        return USERINFO
    if head.method == M_CONNECT:
        return NO_PORT if memchr(text, c':', n) == NULL else NO_HINT
    if n > 8 and equals_lower(text, b"https://", 8):
        return HTTPS_TARGET
    if n > 7 and not equals_lower(text, b"http://", 7) and memmem(text, n, b"://", 3) != NULL:
        return OTHER_SCHEME
    return NO_HINT


cdef uint32_t show_refused(char *out, const Head *head, const char *buf,
                           uint32_t *n) noexcept nogil:
    cdef const char *text = buf + head.target
    cdef uint32_t scheme = 0
    cdef uint32_t hidden = hide_userinfo(text, head.target_len, &scheme)
    cdef char *p = out
    memcpy(p, buf + head.start, head.method_len)
    p += head.method_len
    p[0] = c' '
    p += 1
    n[0] = head.target_len
    if hidden:
        memcpy(p, text, scheme)
        memcpy(p + scheme, b"***@", 4)
        p += scheme + 4
        n[0] += scheme + 4 - hidden
    memcpy(p, text + hidden, head.target_len - hidden)
    return <uint32_t>(p - out) + head.target_len - hidden


# Returns the offset at which possible credentials end, 0: there are none. They begin after
# the scheme and reach to the last "@" or %40, because a refused authority has no certain end.
cdef uint32_t hide_userinfo(const char *text, uint32_t n, uint32_t *scheme) noexcept nogil:
    cdef Target ignored
    cdef uint32_t end = 0
    cdef uint32_t behind = 0
    cdef uint32_t i
    if text[0] == c'/' and (n == 1 or text[1] != c'/'):
        return 0                    # a path, without an authority
    while end < n and is_class(text[end], CC_HOST):
        end += 1
    if n - end > 3 and memcmp(text + end, b"://", 3) == 0:
        scheme[0] = end = end + 3
        while end < n and text[end] != c'/' and text[end] != c'?' and text[end] != c'#':
            end += 1
        if parse_authority(&ignored, text + scheme[0], end - scheme[0], 80) == 0:
            return 0                # a valid authority has no userinfo
    for i in range(n):
        if text[i] == c'@' or (i > 1 and memcmp(text + i - 2, b"%40", 3) == 0):
            behind = i + 1
    return behind if behind > scheme[0] else 0
