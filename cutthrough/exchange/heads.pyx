# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Fields of a head as text: one looked up, or the values of some replaced.

The writer does both for each exchange: a search for each name, or a regular expression,
took 1.2 to 4 µs a head; one look at each line's name takes 0.2 µs.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8, PyUnicode_GET_LENGTH, PyUnicode_READ_CHAR
from libc.stdint cimport uint8_t, uint32_t
from libc.string cimport memchr, memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(str text, Py_ssize_t *n) except NULL
    Py_ssize_t PyUnicode_FindChar(str text, Py_UCS4 character, Py_ssize_t begin, Py_ssize_t end,
                                  int direction) except -2


# Fields that HTTP/2 does not have (RFC 9113 section 8.2.2)
cdef frozenset OF_CONNECTION = frozenset((
    "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"))
# The end of a head without content and length, as wire.http2_response makes it
cdef list ENDED = ["Content-Length: 0", "Connection: close", "", ""]


cdef inline uint32_t char_at(str text, Py_ssize_t at) noexcept:
    return PyUnicode_READ_CHAR(text, at)


cdef inline uint32_t lower(uint32_t character) noexcept:
    return character + 32 if 65 <= character <= 90 else character


cdef inline bint is_blank(uint32_t character) noexcept:
    return character == 32 or character == 9


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
    cdef Py_ssize_t at = 0
    return value_behind(head, name, &at) or ""


def find_list(str head not None, str name not None):
    """The values of all fields of this name (lower case) as one list (RFC 9110 section 5.3);
    "": there is none."""
    cdef Py_ssize_t at = 0
    cdef list values = []
    cdef object value = value_behind(head, name, &at)
    while value is not None:
        values.append(value)
        value = value_behind(head, name, &at)
    return ", ".join(values)


cdef object value_behind(str head, str name, Py_ssize_t *at):
    """The trimmed value of the next field of this name behind the line at `at`, which becomes
    its own line; None: there is none."""
    cdef Py_ssize_t size = PyUnicode_GET_LENGTH(head), end, behind
    at[0] = line_end(head, at[0], size) + 1
    while at[0] < size:
        end = line_end(head, at[0], size)
        behind = behind_name(head, at[0], end, name)
        if behind:
            return head[behind:end].strip()
        at[0] = end + 1
    return None


def as_http2(str head not None):
    """A head of HTTP/2 that was read or is sent as one of HTTP/1.1: with its own version, and
    without the fields that stood for its frames."""
    cdef list lines = head.split("\r\n"), output
    cdef str line, first = lines[0]
    cdef Py_ssize_t n = len(lines)
    if first.startswith("HTTP/1."):
        output = ["HTTP/2" + first[8:].rstrip()]
        if n > 4 and lines[n - 4:] == ENDED:    # in HTTP/2 names are in lower case: it is ours
            del lines[n - 4]
    elif first.endswith((" HTTP/1.1", " HTTP/1.0")):
        output = [first[:len(first) - 3] + "2"]
    else:
        return head
    for line in lines[1:]:
        if line.partition(":")[0].rstrip().lower() not in OF_CONNECTION:
            output.append(line)
    return "\r\n".join(output)


cdef class Names:
    """Names of fields (lower case), and the text that stands in place of their values."""

    def __cinit__(self, names, str value not None):
        self.names = sorted({name.encode() for name in names})
        self.value = value.encode()
        self.lengths = 0
        for name in self.names:
            self.lengths |= 1 << min(len(name), 63)

    def replace(self, str head not None):
        """The head with the text behind the colon of each field of these names. Lines that
        continue such a field (RFC 9112 section 5.2) go with it. Raises UnicodeEncodeError."""
        cdef Py_ssize_t size = 0
        cdef const char *text = PyUnicode_AsUTF8AndSize(head, &size)
        cdef bytearray buffer = bytearray(self.most_of(text, size))
        cdef char *end = self.put(text, size, PyByteArray_AS_STRING(buffer))
        return PyUnicode_DecodeUTF8(
            PyByteArray_AS_STRING(buffer), end - PyByteArray_AS_STRING(buffer), NULL)

    cdef size_t most_of(self, const char *head, size_t size) noexcept:
        """Bytes that `put` writes at most."""
        cdef size_t lines = 1
        cdef const char *at = head
        while at != NULL:
            at = <const char *>memchr(at, 10, head + size - at)
            if at != NULL:
                at += 1
                lines += 1
        return size + lines * PyBytes_GET_SIZE(self.value)

    cdef char *put(self, const char *head, size_t size, char *to) noexcept:
        """Copies the head, and replaces; returns the end of the copy."""
        cdef const char *rest = head
        cdef const char *end = head + size
        cdef const char *at = line_behind(head, end)
        cdef const char *next
        cdef const char *behind
        while at < end:
            next = line_behind(at, end)
            behind = self.behind(at, next)
            if behind != NULL:
                while next < end and is_blank(next[0]):
                    next = line_behind(next, end)
                memcpy(to, rest, behind - rest)
                to += behind - rest
                memcpy(to, PyBytes_AS_STRING(self.value), PyBytes_GET_SIZE(self.value))
                to += PyBytes_GET_SIZE(self.value)
                rest = value_end(behind, next)
            at = next
        memcpy(to, rest, end - rest)
        return to + (end - rest)

    cdef int find(self, const char *head, size_t size, Value *values) noexcept:
        """The first values of fields of these names, MOST_VALUES at most; returns how many."""
        cdef const char *end = head + size
        cdef const char *at = line_behind(head, end)
        cdef const char *next
        cdef const char *behind
        cdef int n = 0
        while at < end and n < MOST_VALUES:
            next = line_behind(at, end)
            behind = self.behind(at, next)
            if behind != NULL:
                while next < end and is_blank(next[0]):
                    next = line_behind(next, end)
                values[n].line, values[n].begin = at - head, behind - head
                values[n].end = value_end(behind, next) - head
                n += 1
            at = next
        return n

    cdef char *put_found(self, const char *head, size_t size, const Value *values, int n,
                         char *to) noexcept:
        """As `put`, of the matches of `find`, if that is all."""
        cdef size_t rest = 0
        cdef int i
        for i in range(n):
            memcpy(to, head + rest, values[i].begin - rest)
            to += values[i].begin - rest
            memcpy(to, PyBytes_AS_STRING(self.value), PyBytes_GET_SIZE(self.value))
            to += PyBytes_GET_SIZE(self.value)
            rest = values[i].end
        memcpy(to, head + rest, size - rest)
        return to + (size - rest)

    cdef const char *behind(self, const char *at, const char *end) noexcept:
        """The begin of the value, if the line is a field of one of the names; or NULL. White
        space before the colon is a malformed field of that name."""
        cdef const char *colon = <const char *>memchr(at, 58, end - at)
        cdef size_t n
        cdef bytes name
        if colon == NULL:
            return NULL
        n = colon - at
        while n and is_blank(at[n - 1]):
            n -= 1
        if not self.lengths >> min(n, <size_t>63) & 1:
            return NULL
        for name in self.names:
            if <size_t>PyBytes_GET_SIZE(name) == n and is_name(
                    at, PyBytes_AS_STRING(name), n):
                return colon + 1
        return NULL


cdef inline bint is_name(const char *at, const char *name, size_t n) noexcept:
    cdef size_t i
    for i in range(n):
        if lower(<uint8_t>at[i]) != <uint8_t>name[i]:
            return False
    return True


cdef inline const char *value_end(const char *begin, const char *next) noexcept:
    """Without the end of its line."""
    if next > begin and (next - 1)[0] == 10:
        next -= 1
        if next > begin and (next - 1)[0] == 13:
            next -= 1
    return next


cdef inline const char *line_behind(const char *at, const char *end) noexcept:
    """The begin of the next line."""
    cdef const char *newline = <const char *>memchr(at, 10, end - at)
    return end if newline == NULL else newline + 1
