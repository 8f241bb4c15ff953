# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Fields of a head as text: one looked up, or the values of some replaced.

The writer does both for each exchange: a search for each name, or a regular expression,
took 1.2 to 4 µs a head; one look at each line's name takes 0.2 µs.
"""

from cpython.unicode cimport PyUnicode_GET_LENGTH, PyUnicode_READ_CHAR
from libc.stdint cimport uint32_t

cdef extern from "Python.h":
    Py_ssize_t PyUnicode_FindChar(str text, Py_UCS4 one, Py_ssize_t begin, Py_ssize_t end,
                                  int direction) except -2


# Fields that HTTP/2 does not have (RFC 9113 section 8.2.2)
cdef frozenset OF_CONNECTION = frozenset((
    "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"))
# The end of a head without content and length, as wire.http2_response makes it
cdef list ENDED = ["Content-Length: 0", "Connection: close", "", ""]


cdef inline uint32_t char_at(str text, Py_ssize_t at) noexcept:
    return PyUnicode_READ_CHAR(text, at)


cdef inline uint32_t lower(uint32_t one) noexcept:
    return one + 32 if 65 <= one <= 90 else one


cdef inline bint is_blank(uint32_t one) noexcept:
    return one == 32 or one == 9


cdef Py_ssize_t behind_name(str text, Py_ssize_t at, Py_ssize_t end, str name) except -1:
    """The position behind the colon, if the line text[at:end] is the field `name`; 0: it is not.
    White space before the colon is a malformed field of that name."""
    cdef Py_ssize_t i, n = PyUnicode_GET_LENGTH(name)
    if end - at <= n:
        return 0
    for i in range(n):
        if lower(char_at(text, at + i)) != char_at(name, i):
            return 0
    at += n
    while at < end and is_blank(char_at(text, at)):
        at += 1
    return at + 1 if at < end and char_at(text, at) == 58 else 0


cdef inline Py_ssize_t line_end(str text, Py_ssize_t at, Py_ssize_t size) except -1:
    cdef Py_ssize_t end = PyUnicode_FindChar(text, 10, at, size, 1)
    return size if end < 0 else end


def find_field(str head not None, str name not None):
    """The value of the first field of this name (lower case), trimmed; "": there is none."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(head), at, end, behind
    at = line_end(head, 0, size) + 1
    while at < size:
        end = line_end(head, at, size)
        behind = behind_name(head, at, end, name)
        if behind:
            return head[behind:end].strip()
        at = end + 1
    return ""


def as_http2(str head not None):
    """A head of HTTP/2 that was read or is sent as one of HTTP/1.1: with its own version, and
    without the fields that stood for its frames."""
    cdef list lines = head.split("\r\n"), kept
    cdef str line, first = lines[0]
    cdef Py_ssize_t n = len(lines)
    if first.startswith("HTTP/1."):
        kept = ["HTTP/2" + first[8:].rstrip()]
        if n > 4 and lines[n - 4:] == ENDED:    # in HTTP/2 names are in lower case: it is ours
            del lines[n - 4]
    elif first.endswith((" HTTP/1.1", " HTTP/1.0")):
        kept = [first[:len(first) - 3] + "2"]
    else:
        return head
    for line in lines[1:]:
        if line.partition(":")[0].rstrip().lower() not in OF_CONNECTION:
            kept.append(line)
    return "\r\n".join(kept)


def replace_values(str head not None, tuple names not None, str value not None):
    """The head with `value` behind the colon of each field of these names (lower case). Lines
    that continue such a field (RFC 9112 section 5.2) go with it."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(head), at, end, behind, kept = 0
    cdef list parts = None
    cdef str name
    at = line_end(head, 0, size) + 1
    while at < size:
        end = line_end(head, at, size)
        for name in names:
            behind = behind_name(head, at, end, name)
            if behind:
                while end + 1 < size and is_blank(char_at(head, end + 1)):
                    end = line_end(head, end + 1, size)
                if parts is None:
                    parts = []
                parts.append(head[kept:behind])
                parts.append(value)
                kept = end - (end > behind and char_at(head, end - 1) == 13)
                break
        at = end + 1
    if parts is None:
        return head
    parts.append(head[kept:])
    return "".join(parts)
