# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Answers in memory: if the player would give the same answer again, it is sent without the player.

An Answer is kept here, by the bytes of the request that count, until recordings change. If the request
comes again, and its body, if any, came with its head, the answer is sent at once. Most answers are
made before a request asks for them: see recording.play.beforehand. A request with filters never comes
here.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint16_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy
from cutthrough.net.buffers cimport bytes_of, give_block, shrink_block
from cutthrough.outcome cimport REPLAYED
from cutthrough.policy.acl cimport CACHES
from cutthrough.session.model.chunked_body cimport scan_of
from cutthrough.session.model.client cimport Client, user_of
from cutthrough.session.model.inside cimport Inside
from cutthrough.session.model.recording_mode cimport recording_of
from cutthrough.session.model.state cimport HELD, RELAY
from cutthrough.session.transfer.responder cimport begin_answer, send_own_head
from cutthrough.session.transfer.response cimport pump_down
from cutthrough.wire.connect cimport Value

cdef enum:
    HALF_BYTES = 33554432       # of answers and their keys, in each half; shared bodies apart
    OF_ENTRY = 200              # of an entry's objects
    BEGIN = 32                  # bytes of a body by which it is mostly found
    MOST_HOST = 253             # octets, of a name
    OF_CACHE = 128              # first byte of a key; others begin with the version

# The common part of like requests, beside their bodies; the caller owns the texts
cdef struct Line:
    int minor                   # of its HTTP/1 version
    bint is_inside              # an opened tunnel
    uint16_t port
    Value host, text            # `text`: up to its CR, or the whole head

# Of an answer's owner, as recording.model.sharing has them
cdef str PRIVATE = "!"
cdef bytes ANONYMOUS = b":"


cdef class AnswerCache:

    def __cinit__(self):
        self.newer = {}
        self.older = {}
        self.hits = {}

    def clear(self):
        """Recordings have changed, or the parts of requests that count."""
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
            self.hits = self.take_hits()        # of the forgotten half, too
            self.older = self.newer
            self.newer = {}
            self.size = 0
        self.newer[key] = answer
        self.size += size

    def prepare(self, line, ready):
        """Keeps this answer for requests of HTTP/1.1 with this line and no body, if no
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


cdef bytes key_of(Client c, const char *body, size_t m):
    """Returns the key of the request's line, or of its whole head if fields or a body count, and of its
    body."""
    cdef Line line
    cdef const char *end
    line.minor, line.is_inside, line.port = c.request.minor, c.entrance.is_inside, c.request.port
    line.host = Value(c.key, len(c.key) - 2)
    if line.is_inside:                  # the host of requests that the player sees
        line.host = Value((<Inside>c.entrance).name, len((<Inside>c.entrance).name))
    line.text = Value(bytes_of(c.head), c.head.end)
    if m == 0 and not (<AnswerCache>c.context.answer_cache).by_fields:
        end = <const char *>memchr(line.text.text, b"\n", line.text.n)
        line.text.n = end - line.text.text if end != NULL else line.text.n
    return make_key(&line, Value(body, m))


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


cdef bytes key_in_cache(Client c, bytes key):
    """Returns the key of an answer that an earlier request brought here: it is for that request's user,
    and for rules of one kind."""
    cdef bytes user = user_of(c) or ANONYMOUS
    return b"%c%d:%b%b" % (
        OF_CACHE + c.snapshot.acl.rules[c.request.rule].shared, len(user), user, key)


cdef Answer known_answer(Client c):
    cdef AnswerCache answers = c.context.answer_cache
    cdef Answer answer
    cdef size_t m = 0
    cdef const char *body = NULL
    if answers is None or not answers.newer or c.usage.meter != NULL or (
            c.request.has_upgrade):
        return None
    if c.up_open:
        if scan_of(&c.relay.up) != NULL or c.input == NULL or c.request.awaits_100 or not (
                0 < c.relay.up.left <= <int64_t>(c.input.end - c.input.start)):
            return None
        m = <size_t>c.relay.up.left
        body = bytes_of(c.input) + c.input.start
    answer = find_answer(c, answers, key_of(c, body, m))
    if answer is None:
        return None
    if m:
        c.input.start += <uint32_t>m
        if c.input.start == c.input.end:
            give_block(&c.input)
        else:
            shrink_block(&c.input)
        c.relay.up.left = 0
        c.up_open = False
    return answer


cdef Answer find_answer(Client c, AnswerCache answers, bytes key):
    cdef Answer answer
    if recording_of(c) != CACHES:
        return answers.find(key)
    answer = answers.find(key_in_cache(c, key))
    if answer is None:
        answer = answers.find(key)
        if answer is not None and not may_read(c, answer):
            return None
    return answer


cdef bint may_read(Client c, Answer answer):
    """As recording.model.sharing decides it. An answer that an earlier request of the mode `replay`
    brought here is not for `cache`: its readers may have another recording in its place."""
    cdef bytes owner = answer.owner
    if owner is None or (answer.is_private and owner == ANONYMOUS):
        return False
    return not owner or owner == (user_of(c) or ANONYMOUS) or (
        not answer.is_private and c.snapshot.acl.rules[c.request.rule].shared)


cdef int send_known(Client c, Answer answer) except -1:
    answer.hits += 1
    c._set_state(HELD)                  # as the player's answers
    return send_whole(
        c, REPLAYED, answer.head, PyBytes_AS_STRING(answer.source) + answer.body_at,
        answer.body_size)


cdef int send_whole(Client c, int ending, bytes head, const char *body, size_t m) except -1:
    begin_answer(c, ending)
    send_own_head(c, head, body, m)
    return pump_down(c) if c.state == RELAY else 0


cdef int keep_answer(Client c, bytes sent, Answer answer) except -1:
    cdef bytes key = key_of(c, sent, len(sent))
    if recording_of(c) == CACHES:
        key = key_in_cache(c, key)
    return (<AnswerCache>c.context.answer_cache).put(key, answer)
