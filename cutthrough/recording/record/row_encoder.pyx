# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Exchanges out of the ring -> rows of a session, for most exchanges: the fast path. Its rows are
those of the slow path, which are made of a Recording.

    an exchange ─> RowEncoder.add ───────────────────────────────────────> a row
                       └ a reason ─> Converter.take_slow_path ─> Session.row ─> a row
                                          └ NotRecordable: nothing is recorded

A row's data is a Recording in MessagePack. Of a batch, equal heads are read, redacted and encoded
once. What is rare, or must be looked at as a whole, takes the slow path: below are the reasons, by
which Converter counts. tests/recording/test_row_encoder.py holds both paths to equal rows.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy
from msgspec.msgpack import Encoder

from cutthrough.exchange.content import has_heads, join_chunks
from cutthrough.tape.batch cimport BLOB, TEXT, Batch
from cutthrough.tape.record cimport TIME_BYTES, TIMED_DOWN, Record, payload_of
from cutthrough.tape.ring_exchange cimport RingExchange
from cutthrough.exchange.user_information cimport may_have_user
from cutthrough.tape.texts cimport Text, is_ascii, latin1_of
from cutthrough.recording.record.messagepack cimport (
    copied, put_array, put_bytes, put_data, put_decimal, put_map, put_number, put_text)
from cutthrough.recording.model.recorded_heads import read_request, read_response
from cutthrough.recording.model.masking import repeats
from cutthrough.recording.model.recording import find
from cutthrough.recording.record.conversion import CONDITIONAL, announced, field_of, unframe

cdef enum:
    # Bytes of a row beside its texts, and of a chunk beside its data: at most
    MOST_WORDS = 256
    MOST_OF_CHUNK = 40
    MOST_BESIDE_HOST = 32       # scheme, brackets and port of a URL

cdef object encode = Encoder().encode

# Why an exchange takes the slow path
cdef str BODIES = "bodies are redacted"
cdef str MESSAGES = "a WebSocket"
cdef str CALL = "a call whose sides talk in turn"
cdef str ADDED = "filters have added secrets"
cdef str ECHO = "the answer repeats a secret"
cdef str TRAILERS = "trailers"
cdef str UNDATED = "its begin is unknown"
cdef str LINE = "an odd first line, or no ASCII"
cdef str USER = "user information in its URL"
cdef str EARLY = "an answer before the end of its request"
# Most of these are no recordings at all
cdef str PART = "a part is missing"
cdef str ENDED = "it did not end well"
cdef str CONDITION = "a condition of its client"
# The exchange is malformed; or this module has a fault, if a Recording can be made of it
FAILED = "no row could be made"

cdef struct _Line:
    # A request's first line; the exchange has the memory
    Text method
    Text target                             # without a "?" at its end
    Text path
    Text query                              # empty: none
    Text protocol


cdef class _EncodedHead:
    """A head that was read: redacted, as entries of a map in MessagePack."""
    cdef bytes entries
    cdef int count, status
    cdef bint is_chunked, has_heads         # in its body
    cdef bint is_conditional                # the status of a response
    cdef uint64_t announced                 # bytes of a request's body
    cdef str coding                         # of a response
    cdef object echoes                      # of a request: values that its answer may repeat, or None


cdef class RowEncoder:
    """Adds rows to one batch, and has secrets of heads: only as long as the batch is made."""
    cdef object _masker
    cdef bint _reads_bodies
    cdef Batch _batch
    cdef _HeadCache _requests, _responses
    cdef readonly object error              # of the last FAILED
    cdef Text *_pieces                      # of an answer, each behind its time
    cdef size_t _n_pieces, _most_pieces

    def __cinit__(self, masker, Batch batch not None):
        self._masker, self._batch = masker, batch
        self._reads_bodies = masker.reads_bodies
        self._requests, self._responses = _HeadCache(), _HeadCache()

    def __dealloc__(self):
        free(self._pieces)

    def add(self, RingExchange exchange not None):
        """Adds the exchange's row, and returns None; or adds nothing, and returns the reason why the
        exchange takes the slow path."""
        cdef size_t n_cells = self._batch.n_cells
        try:
            return self._add(exchange)
        except Exception as error:          # make_recording fails, too, and says why
            self._batch.drop_from(n_cells)
            self.error = error
            return FAILED

    cdef str _add(self, RingExchange exchange):
        cdef size_t n
        cdef _Line line
        cdef bytes up = exchange.up
        cdef list unframed = None               # keeps the pieces
        cdef _EncodedHead request, response
        if self._reads_bodies:
            return BODIES
        if exchange.pieces:
            return MESSAGES
        if exchange.asked is not None:
            return CALL
        if exchange.added_text.n:
            return ADDED
        if exchange.reason != "ok":
            return ENDED
        if exchange.begun_us <= 0:
            return UNDATED
        if exchange.was_cut or (
                not exchange.up_text.n or not exchange.down_text.n) or (
                <uint64_t>PyBytes_GET_SIZE(up) != exchange.up_bytes) or (
                self._take(exchange) != exchange.down_bytes):
            return PART
        response = self._response(exchange.down_text)
        if response.is_conditional:
            return CONDITION
        if response.has_heads:
            return BODIES
        n = read_line(exchange.up_text, &line)
        if n == 0 or not (is_ascii(exchange.host_text.data, exchange.host_text.n)
                          and is_ascii(exchange.user_text.data, exchange.user_text.n)):
            return LINE
        if may_have_user(line.target.data, line.target.n):
            return USER
        request = self._request(exchange.up_text, n)
        if up and request.has_heads:
            return BODIES
        if exchange.up_chunked or request.is_chunked:
            up, ended = join_chunks(up)
            if not ended:
                return EARLY
        elif <uint64_t>PyBytes_GET_SIZE(up) < request.announced:
            return EARLY
        if exchange.down_chunked:
            unframed = contents(exchange)
            if unframed is None:
                return TRAILERS
            self._take_list(unframed)
        if request.echoes is not None and repeats(
                request.echoes, response.entries, response.coding, self._joined()):
            return ECHO
        self._batch.number(exchange.begun_us)
        self._batch.number(0)
        self._batch.text(line.method.data, line.method.n)
        put_url(self._batch, exchange, line.target.data, line.target.n)
        self._batch.number(response.status)
        self._batch.text(b"", 0)
        put_data_of(self, exchange, request, response, &line, up)
        return None

    cdef uint64_t _take(self, RingExchange exchange) except? 0:
        """Takes the pieces of an answer. Returns how many bytes they have without their times."""
        cdef const Record *record
        cdef uint64_t moved = 0
        cdef int i
        if exchange.timed is not None:
            return self._take_list(exchange.timed)
        self._n_pieces = 0
        for i in range(exchange.whole.n):
            record = exchange.whole.records[i]
            if record.kind == TIMED_DOWN:
                moved += self._take_piece(payload_of(record), record.length)
        return moved

    cdef uint64_t _take_list(self, list timed) except? 0:
        cdef bytes piece
        cdef uint64_t moved = 0
        self._n_pieces = 0
        for piece in timed:
            moved += self._take_piece(PyBytes_AS_STRING(piece), PyBytes_GET_SIZE(piece))
        return moved

    cdef inline uint64_t _take_piece(self, const char *data, size_t n) except? 0:
        cdef void *grown
        if self._n_pieces == self._most_pieces:
            grown = realloc(self._pieces, 2 * (self._most_pieces + 8) * sizeof(Text))
            if grown == NULL:
                raise MemoryError
            self._pieces, self._most_pieces = <Text *>grown, 2 * (self._most_pieces + 8)
        self._pieces[self._n_pieces].data = data
        self._pieces[self._n_pieces].n = n
        self._n_pieces += 1
        return n - TIME_BYTES

    cdef bytes _joined(self):
        cdef size_t i
        return b"".join([PyBytes_FromStringAndSize(
            self._pieces[i].data + TIME_BYTES, self._pieces[i].n - TIME_BYTES)
            for i in range(self._n_pieces)])

    cdef _EncodedHead _response(self, Text head):
        cdef _EncodedHead encoded = self._responses.get(head)
        if encoded is None:
            status, reason, protocol, fields = read_response(latin1_of(head))
            encoded = _EncodedHead.__new__(_EncodedHead)
            encoded.status, encoded.is_conditional = status, status in CONDITIONAL
            encoded.coding = find(fields, "content-encoding").lower()
            encoded.has_heads = has_heads(find(fields, "content-type"))
            fill_in(encoded, {
                "status": status, "reason": self._masker.line(reason), "protocol": protocol,
                "fields": self._masker.fields(fields)})
            self._responses.keep(encoded)
        return encoded

    cdef _EncodedHead _request(self, Text head, size_t begin):
        """Of the fields, which begin there."""
        cdef Text lines
        cdef _EncodedHead encoded
        lines.data, lines.n = head.data + begin, head.n - begin
        encoded = self._requests.get(lines)
        if encoded is None:
            text = latin1_of(head)
            fields = read_request(text, "", "", 0).fields
            encoded = _EncodedHead.__new__(_EncodedHead)
            encoded.is_chunked = "chunked" in field_of(text, "transfer-encoding")
            encoded.announced = announced(text)
            encoded.has_heads = has_heads(find(fields, "content-type"))
            encoded.echoes = self._masker.echoes(fields)
            fill_in(encoded, {"fields": self._masker.fields(fields)})
            self._requests.keep(encoded)
        return encoded


cdef class _HeadCache:
    """Those of a batch. Most have the same lines as the one before."""
    cdef dict _heads
    cdef bytes _last
    cdef _EncodedHead _last_head

    def __cinit__(self):
        self._heads = {}

    cdef _EncodedHead get(self, Text head):
        """None: the head has to be read, for `keep`."""
        if self._last is None or <size_t>PyBytes_GET_SIZE(self._last) != head.n or (
                memcmp(PyBytes_AS_STRING(self._last), head.data, head.n) != 0):
            self._last = PyBytes_FromStringAndSize(head.data, head.n)
            self._last_head = self._heads.get(self._last)
        return self._last_head

    cdef int keep(self, _EncodedHead encoded) except -1:
        self._last_head = self._heads[self._last] = encoded
        return 0


cdef size_t read_line(Text head, _Line *line) noexcept:
    """Returns the length of a request's first line; 0: it is odd, or has other than ASCII."""
    cdef const char *end = <const char *>memchr(head.data, b"\r", head.n)
    cdef const char *target
    cdef const char *protocol
    cdef const char *query
    if end == NULL or end + 1 == head.data + head.n or end[1] != b"\n":
        return 0
    target = <const char *>memchr(head.data, b" ", end - head.data)
    if target == NULL:
        return 0
    protocol = <const char *>memchr(target + 1, b" ", end - target - 1)
    if protocol == NULL or memchr(protocol + 1, b" ", end - protocol - 1) != NULL or (
            not is_ascii(head.data, end - head.data)):
        return 0
    line.method = Text(head.data, target - head.data)
    line.target = line.path = Text(target + 1, protocol - target - 1)
    line.protocol = Text(protocol + 1, end - protocol - 1)
    line.query = Text(NULL, 0)
    query = <const char *>memchr(line.target.data, b"?", line.target.n)
    if query != NULL:
        line.path.n = query - line.target.data
        line.query = Text(query + 1, line.target.n - line.path.n - 1)
        line.target.n -= line.query.n == 0
    return end - head.data


cdef int fill_in(_EncodedHead encoded, dict entries) except -1:
    cdef list parts = []
    for name, value in entries.items():
        if value and not (name == "protocol" and value == "HTTP/1.1"):
            parts += [encode(name), encode(value)]
    encoded.entries, encoded.count = b"".join(parts), len(parts) // 2
    return 0


cdef list contents(RingExchange exchange):
    """The pieces without the framing of chunks; None: trailers follow."""
    pieces, trailers = unframe(zip(exchange.times, exchange.down, strict=True))
    if trailers:
        return None
    return [at_us.to_bytes(TIME_BYTES, "little") + data for at_us, data in pieces]


cdef int put_data_of(RowEncoder encoder, RingExchange exchange, _EncodedHead request,
                     _EncodedHead response, const _Line *line, bytes up) except -1:
    cdef Batch batch = encoder._batch
    cdef const Text *pieces = encoder._pieces
    cdef size_t n_pieces = encoder._n_pieces
    cdef size_t n_up = PyBytes_GET_SIZE(up), i
    cdef size_t size = MOST_WORDS + exchange.host_text.n + exchange.user_text.n
    size += line.method.n + line.path.n + line.query.n + line.protocol.n + n_up
    cdef bint has_protocol = (
        line.protocol.n != 8 or memcmp(line.protocol.data, b"HTTP/1.1", 8) != 0)
    cdef int64_t head_us = max(<int64_t>0, exchange.wait_us), at_us
    cdef uint32_t n_chunks = 0
    cdef char *at
    size += PyBytes_GET_SIZE(request.entries) + PyBytes_GET_SIZE(response.entries)
    for i in range(n_pieces):
        n_chunks += pieces[i].n > TIME_BYTES
        size += pieces[i].n + MOST_OF_CHUNK
    at = put_map(batch.begin_of(BLOB, size), 4)
    at = put_text(at, b"request", 7)
    at = put_map(at, 5 + (line.query.n > 0) + (n_up > 0) + has_protocol + request.count)
    at = put_text(at, b"method", 6)
    at = put_text(at, line.method.data, line.method.n)
    at = put_text(at, b"scheme", 6)
    at = put_text(at, b"https", 5) if exchange.is_intercepted else put_text(at, b"http", 4)
    at = put_text(at, b"host", 4)
    at = put_text(at, exchange.host_text.data, exchange.host_text.n)
    at = put_text(at, b"port", 4)
    at = put_number(at, exchange.port)
    at = put_text(at, b"path", 4)
    at = put_text(at, line.path.data, line.path.n)
    if line.query.n:
        at = put_text(at, b"query", 5)
        at = put_text(at, line.query.data, line.query.n)
    at = put_bytes(at, request.entries)
    if n_up:
        at = put_text(at, b"body", 4)
        at = put_data(at, PyBytes_AS_STRING(up), n_up)
    if has_protocol:
        at = put_text(at, b"protocol", 8)
        at = put_text(at, line.protocol.data, line.protocol.n)
    at = put_text(at, b"response", 8)
    at = put_map(at, response.count + (head_us > 0) + (n_chunks > 0))
    at = put_bytes(at, response.entries)
    if head_us:
        at = put_text(at, b"head_us", 7)
        at = put_number(at, head_us)
    if n_chunks:
        at = put_text(at, b"chunks", 6)
        at = put_array(at, n_chunks)
        for i in range(n_pieces):
            if pieces[i].n == TIME_BYTES:
                continue
            memcpy(&at_us, pieces[i].data, TIME_BYTES)
            at = put_map(at, 2)
            at = put_text(at, b"at_us", 5)
            at = put_number(at, head_us + max(<int64_t>0, at_us - exchange.head_at_us))
            at = put_text(at, b"data", 4)
            at = put_data(at, pieces[i].data + TIME_BYTES, pieces[i].n - TIME_BYTES)
    at = put_text(at, b"created_us", 10)
    at = put_number(at, exchange.begun_us)
    at = put_text(at, b"owner", 5)          # as sharing.owner_of
    at = put_text(at, exchange.user_text.data, exchange.user_text.n) if exchange.user_text.n else (
        put_text(at, b":", 1))
    return batch.end_at(at)


cdef int put_url(Batch batch, RingExchange exchange, const char *target, size_t n_target) except -1:
    """As Request.url."""
    cdef const char *host = exchange.host_text.data
    cdef size_t n_host = exchange.host_text.n
    cdef bint is_v6 = memchr(host, b":", n_host) != NULL
    cdef char *at = batch.begin_of(TEXT, n_host + n_target + MOST_BESIDE_HOST)
    at = copied(at, b"https://", 8) if exchange.is_intercepted else copied(at, b"http://", 7)
    if is_v6:
        at = copied(at, b"[", 1)
    at = copied(at, host, n_host)
    if is_v6:
        at = copied(at, b"]", 1)
    if exchange.port != (443 if exchange.is_intercepted else 80):
        at = put_decimal(copied(at, b":", 1), exchange.port)
    return batch.end_at(copied(at, target, n_target))
