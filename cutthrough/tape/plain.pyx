# cython: language_level=3, boundscheck=False, wraparound=False
"""A body that is kept as it came: most are, and exchange.bodies took 3 µs for each of 1 KiB.

Whatever is not obvious goes there, and both have the same result.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport SIZE_MAX, uint64_t
from libc.string cimport memchr
from posix.strings cimport strncasecmp
from cutthrough.exchange.search cimport has_part
from cutthrough.tape.texts cimport Text, is_ascii
from cutthrough.exchange.content import codec_of, has_heads

cdef enum:
    MOST_KINDS = 1000               # media types that are known
    MOST_WORK = 1 << 28             # octets times secrets, as exchange.captured_echoes

cdef size_t NOT_SAID = SIZE_MAX

cdef dict _KINDS = {}               # is it UTF-8 without heads, by the field's value

cdef const char *CODING = "content-encoding"
cdef const char *KIND = "content-type"
cdef const char *LENGTH = "content-length"


cdef bytes plain_of(list pieces, uint64_t size, Text head, bint of_request, tuple secrets):
    cdef bytes data = b""                   # most requests
    cdef const char *text
    cdef size_t n
    if pieces is not None:
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
    text, n = PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data)
    if n != size or not is_ascii(text, n) or memchr(text, 0, n) != NULL:
        return None
    if not is_whole_text(head, n if of_request else NOT_SAID):
        return None
    if secrets is not None and (
            n * len(secrets) > MOST_WORK or has_part(secrets, text, n)):
        return None
    return data


cdef bint is_whole_text(Text head, size_t length) except -1:
    """Does the head say UTF-8 and no coding, and this length unless it is NOT_SAID?"""
    cdef const char *at = head.data
    cdef const char *last = at + head.n
    cdef const char *end
    cdef const char *kind = NULL
    cdef size_t n_kind = 0
    while True:
        at = <const char *>memchr(at, 10, last - at)
        if at == NULL:
            break
        at += 1
        end = <const char *>memchr(at, 10, last - at)
        if end == NULL:
            end = last
        if end - at < 12 or at[0] | 32 != 99 or strncasecmp(at, b"content-", 8) != 0:
            continue
        if begins(at, end, CODING, 16):
            return False
        if begins(at, end, LENGTH, 14):
            if length != NOT_SAID and not says(at + 14, end, length):
                return False
        elif kind == NULL and begins(at, end, KIND, 12):
            kind, n_kind = at + 12, end - at - 12
    if kind == NULL:
        return True                         # ASCII without a NUL is text
    return is_utf8(PyBytes_FromStringAndSize(kind, n_kind))


cdef inline bint begins(const char *at, const char *end, const char *name, Py_ssize_t n) noexcept:
    return end - at > n and strncasecmp(at, name, n) == 0


cdef bint says(const char *at, const char *end, size_t length) noexcept:
    """Is the field, from behind its name, this number in its usual form?"""
    cdef size_t number = 0
    if at == end or at[0] != 58:            # :
        return False
    at += 1
    while at < end and at[0] == 32:
        at += 1
    while at < end and 48 <= at[0] <= 57 and number < <size_t>1 << 40:
        number = number * 10 + (at[0] - 48)
        at += 1
    return number == length and (at == end or at[0] == 13)


cdef bint is_utf8(bytes field) except -1:
    """`field`: Content-Type, from behind its name."""
    answer = _KINDS.get(field)
    if answer is None:
        name, colon, kind = field.decode("latin-1").partition(":")
        answer = bool(colon) and not name.strip(" \t") and (
            codec_of(kind.strip()) == "utf-8" and not has_heads(kind.strip()))
        if len(_KINDS) >= MOST_KINDS:
            _KINDS.clear()
        _KINDS[field] = answer
    return answer
