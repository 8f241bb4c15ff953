# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""User information of the URLs in a text (R80): `https://user:password@host/`. Stores and the log
read it in one way.

The marks of a URL may be percent-encoded at any depth, as in one that is a value of another one,
or be `\\/`, as in JSON; and a URL may have no scheme (`Location: //user:password@host/`). What
ends user information is spelled as the `//` before it: in `https://user:a%2Fb@host/` the encoded
solidus belongs to the password, in `https%3A%2F%2Fuser:a%2Fb` it ends the authority.

A text is read once for each depth of encoding, and there are MOST_DEPTH of them.
"""

from libc.stdint cimport uint8_t
from libc.string cimport memchr

cdef enum:
    MOST_DEPTH = 20
    # How a mark is spelled; from 0 on: so often encoded, and once more
    PLAIN = -1
    OF_JSON = -2                        # behind a reverse solidus

cdef bytes STAND_IN = b"[redacted]"


def without_user(str text not None):
    """The same object if there is none."""
    cdef bytes data, redacted = b""
    cdef const char *begin
    cdef const char *at
    cdef const char *rest
    cdef const char *end
    cdef const char *user
    cdef const char *user_end = NULL
    cdef list pieces = []
    if "@" not in text and "40" not in text:      # %40
        return text
    data = text.encode("utf-8", "surrogatepass")
    begin = at = rest = data
    end = begin + len(data)
    if not may_have_user(begin, len(data)):
        return text
    while at < end:
        if at[0] == 47 or at[0] == 92 or at[0] == 37:
            user = user_at(begin, at, end, &user_end)
            if user != NULL:
                pieces.append(rest[:user - rest])
                pieces.append(STAND_IN)
                at = rest = user_end
                continue
        at += 1
    if not pieces:
        return text
    pieces.append(rest[:end - rest])
    redacted = b"".join(pieces)
    return redacted.decode("utf-8", "surrogatepass")


cdef bint may_have_user(const char *data, size_t n) noexcept:
    """Has the text an at sign, in whatever spelling?"""
    cdef const char *at = data
    cdef const char *end = data + n
    cdef const char *behind
    cdef uint8_t c = 0
    cdef int depth
    if memchr(data, 64, n) != NULL:
        return True
    while True:
        at = <const char *>memchr(at, 37, end - at)
        if at == NULL:
            return False
        behind = behind_escape(at, end, &c, &depth)
        if behind != NULL and c == 64:
            return True
        at += 1


cdef const char *user_at(const char *data, const char *at, const char *end,
                         const char **user_end) noexcept:
    """Returns the start of user information, if the `//` before it is here; its end is its at sign.
    NULL: there is none. `data`: the start of the text."""
    cdef int first, second, depth
    cdef uint8_t c = 0
    cdef const char *begin = behind_solidus(at, end, &first)
    cdef const char *behind
    cdef const char *separator = NULL
    cdef const char *encoded = NULL
    if begin == NULL:
        return NULL
    begin = behind_solidus(begin, end, &second)
    if begin == NULL or first != second or not may_begin(data, at):
        return NULL
    at = begin
    while at < end:
        c = at[0]
        if c <= 32 or c == 34 or c == 60 or c == 62 or c == 47 or c == 63 or c == 35 or c == 92:
            break                       # " < > / ? # \
        if c == 64:
            separator = at
        elif c == 38 and first >= 0:
            break                       # the end of a value
        elif c == 37:
            behind = behind_escape(at, end, &c, &depth)
            if behind != NULL and depth <= max(first, 0):
                if c == 64:
                    encoded = at
                elif first >= 0 and (c == 47 or c == 63 or c == 35 or c == 92):
                    break
                at = behind
                continue
        at += 1
    separator = encoded if separator == NULL else separator
    if separator == NULL or separator == begin:
        return NULL
    user_end[0] = separator
    return begin


cdef inline bint may_begin(const char *data, const char *at) noexcept:
    """May a `//` that begins here be that of a URL: behind its scheme, or as a value's begin?"""
    cdef const char *before = at
    cdef uint8_t c
    while before > data and ((before - 1)[0] == 32 or (before - 1)[0] == 9):
        before -= 1
    if before == data:
        return True
    c = (before - 1)[0]
    if before != at:                    # white space: in a field, as a value or in a list
        return c == 58 or c == 44 or c == 59 or c == 10
    if c == 58 or c == 61 or c == 34 or c == 39 or c == 60 or c == 40 or c == 44 or c == 10:
        return True                     # : = " ' < ( ,
    if before - data < 3 or (before - 2)[0] != 51 or (
            (before - 3)[0] != 37 and (before - 3)[0] != 53):
        return False
    return c | 32 == 97 or c | 32 == 100    # %3a and %3d


cdef inline const char *behind_solidus(const char *at, const char *end, int *level) noexcept:
    """Returns the place behind a solidus, or a reverse one, which browsers read alike; NULL if there is
    another character."""
    cdef uint8_t c = 0
    if at >= end:
        return NULL
    if at[0] == 47:
        level[0] = PLAIN
        return at + 1
    if at[0] == 92:
        if end - at > 1 and at[1] == 47:
            level[0] = OF_JSON
            return at + 2
        level[0] = PLAIN
        return at + 1
    if at[0] != 37:
        return NULL
    at = behind_escape(at, end, &c, level)
    return at if c == 47 or c == 92 else NULL


cdef inline int digit(uint8_t c) noexcept:
    if 48 <= c <= 57:
        return c - 48
    c |= 32
    return c - 87 if 97 <= c <= 102 else -1


cdef inline const char *behind_escape(const char *at, const char *end, uint8_t *c, int *depth
                                      ) noexcept:
    """Returns the place behind `%2f`, `%252f` and so on; NULL if there is no escape, or one that is too
    deep. `c`: the octet."""
    depth[0] = 0
    at += 1
    while end - at >= 4 and at[0] == 50 and at[1] == 53 and depth[0] <= MOST_DEPTH:
        depth[0] += 1
        at += 2
    if depth[0] > MOST_DEPTH or end - at < 2 or digit(at[0]) < 0 or digit(at[1]) < 0:
        return NULL
    c[0] = 16 * digit(at[0]) + digit(at[1])
    return at + 2
