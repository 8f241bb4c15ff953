# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Answers at hand, by the bytes of their requests: see `recorded`."""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcmp, memcpy
from cutthrough.wire.connect cimport Value

cdef enum:
    HALF_BYTES = 33554432       # of answers and their keys, in each half; shared bodies apart
    OF_ENTRY = 200              # of an entry's objects
    BEGIN = 32                  # bytes of a body by which it is mostly found
    MOST_HOST = 253             # octets, of a name

# Before an owner's name, as recording.model.sharing has it
cdef str PRIVATE = "!"


cdef class Answers:

    def __cinit__(self):
        self.newer = {}
        self.older = {}
        self.hits = {}

    def clear(self):
        """Recordings have changed, or what makes requests alike."""
        self.hits = self.take_hits()
        self.newer = {}
        self.older = {}
        self.size = 0

    cdef Answer find(self, bytes key):
        cdef Answer answer = self.newer.get(key)
        return answer if answer is not None else self.older.get(key)

    cdef int put(self, bytes key, Answer answer) except -1:
        cdef Py_ssize_t size = size_of(key, answer)
        if self.newer and self.size + size > HALF_BYTES:
            self.hits = self.take_hits()        # of what is forgotten
            self.older = self.newer
            self.newer = {}
            self.size = 0
        self.newer[key] = answer
        self.size += size

    def prepare(self, line, ready):
        """Has this answer at hand for requests of HTTP/1.1 with this line and no body, if no
        fields count. `line`, `ready`: as recording.play.shared has them. False: both halves are
        full, and it was not taken."""
        cdef bint is_inside
        cdef int port, number
        cdef bytes host, text, head, body, packed, key
        cdef str mark
        cdef Line wanted
        cdef Answer answer
        is_inside, port, host, text = line
        head, body, number, packed, mark = ready
        if len(host) > MOST_HOST:
            return True
        answer = make_answer(head, body, number, packed)
        answer.is_private = mark.startswith(PRIVATE)
        answer.owner = mark.removeprefix(PRIVATE).encode()
        wanted = Line(1, is_inside, port, Value(host, len(host)), Value(text, len(text)))
        key = make_key(&wanted, Value(NULL, 0))
        if self.older and self.size + size_of(key, answer) > HALF_BYTES:
            return False
        self.put(key, answer)
        return True

    def count(self, int number):
        self.hits[number] = self.hits.get(number, 0) + 1

    def take_hits(self):
        """How often each recording was replayed since the last call."""
        cdef dict hits = self.hits
        cdef Answer answer
        cdef dict half
        for half in (self.newer, self.older):
            for answer in half.values():
                if answer.hits:
                    hits[answer.number] = hits.get(answer.number, 0) + answer.hits
                    answer.hits = 0
        self.hits = {}
        return hits

    def __len__(self):
        return len(self.newer) + len(self.older)


cdef Answer make_answer(bytes head, bytes body, int number, bytes packed):
    cdef Answer answer = Answer.__new__(Answer)
    cdef Py_ssize_t size = len(body)
    cdef Py_ssize_t at = packed.find(body[:BEGIN])
    if at >= 0 and (at + size > len(packed) or memcmp(
            PyBytes_AS_STRING(packed) + at, PyBytes_AS_STRING(body), size) != 0):
        at = packed.find(body)              # 10 us of 6000 bytes
    answer.head, answer.number, answer.body_size = head, number, size
    answer.is_shared = at >= 0 and size > 0
    answer.source = packed if answer.is_shared else body
    answer.body_at = at if answer.is_shared else 0
    return answer


cdef inline Py_ssize_t size_of(bytes key, Answer answer):
    return len(key) + len(answer.head) + OF_ENTRY + (0 if answer.is_shared else answer.body_size)


cdef bytes make_key(const Line *line, Value body):
    cdef size_t k = line.host.n, n = line.text.n
    cdef bytes key = PyBytes_FromStringAndSize(NULL, 4 + k + n + body.n)
    cdef char *at = PyBytes_AS_STRING(key)
    at[0] = <char>(line.minor << 1 | line.is_inside)
    at[1] = <char>(line.port >> 8)
    at[2] = <char>(line.port & 255)
    at[3] = <char>k                     # a name has 253 bytes at most
    at += 4
    memcpy(at, line.host.text, k)
    memcpy(at + k, line.text.text, n)
    if body.n:
        memcpy(at + k + n, body.text, body.n)
    return key
