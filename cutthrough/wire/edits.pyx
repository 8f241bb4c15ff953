# cython: language_level=3, boundscheck=False, wraparound=False
"""Changes of the fields of a head that goes on, by a rule's `headers`.

Dropped lines close up, and new lines follow the last one, so that a head needs no second
buffer. The text of a value that a client has chosen, its name, cannot end its line: controls
become `?` (R41).
"""

from libc.string cimport memchr, memcpy, memmove
from cutthrough.wire.chars cimport equals_lower

# The names in {braces}, by their numbers in Known
KNOWN = ("user", "client", "client_ja4", "http2_fingerprint", "tcp_fingerprint", "client_ja4_r",
         "client_ja4_o", "client_ja4_ro", "client_ja3", "dropped", "traceparent")
assert len(KNOWN) == N_KNOWN


cdef class HeadEdits:

    def __init__(self, dropped, lines, double ratio=0):
        """`dropped`: names, in lower case. `lines`: each the pieces of a line without its
        end: bytes, or numbers of KNOWN. `ratio`: the share of new traces that are sampled."""
        self.dropped = tuple(dropped)
        self.lines = tuple([tuple(line) for line in lines])
        self.names_dropped = any([<int>KNOWN_DROPPED in line for line in self.lines])
        self.names_trace = any([<int>KNOWN_TRACE in line for line in self.lines])
        self.ratio = ratio

    cdef size_t apply(self, char *head, size_t n, size_t cap, const Value *known) except? 0:
        cdef char *limit = head + cap
        cdef char *end = head + n - 2           # of the last line; the empty one follows
        cdef char *line = <char *>memchr(head, c'\n', n) + 1
        cdef char *o = line
        cdef char *behind
        cdef tuple pieces
        cdef Value[N_KNOWN] values
        cdef bytes names
        cdef list gone = []
        cdef int place
        while line < end:
            behind = <char *>memchr(line, c'\n', end - line) + 1
            place = self.place(line, behind)
            if place >= 0:
                gone.append(place)
            else:
                if o != line:
                    memmove(o, line, behind - line)
                o += behind - line
            line = behind
        if self.names_dropped:
            names = b", ".join([self.dropped[place] for place in sorted(set(gone))])
            memcpy(&values[0], known, sizeof(values))
            values[<int>KNOWN_DROPPED] = Value(names, len(names))
            known = &values[0]
        for pieces in self.lines:
            o = put_line(o, limit - 2, pieces, known)
            if o == NULL:
                return 0
        memcpy(o, b"\r\n", 2)
        return o + 2 - head

    cdef int place(self, const char *line, const char *behind) except -2:
        cdef const char *colon = <const char *>memchr(line, c':', behind - line)
        cdef bytes name
        cdef int i
        for i in range(len(self.dropped)):
            name = <bytes>self.dropped[i]
            if colon - line == len(name) and equals_lower(line, name, len(name)):
                return i
        return -1


cdef char *put_line(char *o, char *limit, tuple pieces, const Value *known) except? NULL:
    """NULL: there is no room."""
    cdef const char *text
    cdef size_t n, i
    for piece in pieces:
        if isinstance(piece, bytes):
            text, n = <bytes>piece, len(<bytes>piece)
        else:
            text, n = known[<int>piece].text, known[<int>piece].n
        if <size_t>(limit - o) < n + 2:
            return NULL
        for i in range(n):
            o[i] = text[i] if <unsigned char>text[i] >= 0x20 and text[i] != 0x7f else c'?'
        o += n
    o[0], o[1] = c'\r', c'\n'
    return o + 2
