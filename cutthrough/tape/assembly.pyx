# cython: language_level=3, boundscheck=False, wraparound=False
"""Records of the ring -> rows of the store: the parts of an exchange are put together.

A worker sends HEADS, pieces of bodies and END; END makes the row. Parts without
an END yet are kept in memory within bounds, oldest first out. But for recordings all is redacted here.

Whatever goes wrong with an exchange costs that exchange: `failures` counts it (R71).
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport UINT64_MAX, int64_t, uint32_t, uint64_t
from libc.stdio cimport snprintf
from cutthrough.exchange.heads cimport MOST_VALUES, Names, Value
from cutthrough.exchange.search cimport has_part
from cutthrough.exchange.user_information cimport may_have_user
from cutthrough.tape cimport end_record
from cutthrough.tape cimport record as ring_record
from cutthrough.tape.batch cimport TEXT, Batch
from cutthrough.tape.end_columns cimport (
    put_decision, put_fingerprints, put_http, put_kind, put_opening, put_peers, put_request, put_times,
    put_tls)
from cutthrough.tape.end_record cimport N_TEXTS, EndRecord
from cutthrough.tape.gathered cimport Whole
from cutthrough.tape.open_exchange cimport OpenExchange, add_part, check_end, has_failed, untimed
from cutthrough.tape.plain cimport plain_of, put_content, put_size
from cutthrough.tape.record cimport Kind, Record, payload_of
from cutthrough.tape.ring_exchange cimport RingExchange, ring_exchange_in, ring_exchange_of
from cutthrough.tape.texts cimport (
    Text, is_ascii, latin1_of, split_heads, text_of, texts_of, utf8_of)
from cutthrough.wire.trace cimport with_trace
from cutthrough.exchange.bodies import Body, Transferred, make_body
from cutthrough.exchange.captured_echoes import find_echoes
from cutthrough.exchange.columns import COLUMNS, PACKED
from cutthrough.exchange.failures import Failures
from cutthrough.exchange.heads import as_http2
from cutthrough.exchange.messages import read_websocket
from cutthrough.exchange.redaction.redactor import Redactor

# For tests, which write records too
HEADS, UP, DOWN, END = ring_record.HEADS, ring_record.UP, ring_record.DOWN, ring_record.END
FRAMES_UP, FRAMES_DOWN = ring_record.FRAMES_UP, ring_record.FRAMES_DOWN
TIMED_DOWN = ring_record.TIMED_DOWN
IS_RECORDED, NOT_CAPTURED = end_record.IS_RECORDED, end_record.NOT_CAPTURED
IS_TUNNEL, IS_REPORTED = end_record.IS_TUNNEL, end_record.IS_REPORTED
HAS_UPGRADE, IS_WEBSOCKET = end_record.HAS_UPGRADE, end_record.IS_WEBSOCKET
UP_CHUNKED, DOWN_CHUNKED = end_record.UP_CHUNKED, end_record.DOWN_CHUNKED
UP_CUT, DOWN_CUT = end_record.UP_CUT, end_record.DOWN_CUT
OFFERS_ECH, IS_PINNED = end_record.OFFERS_ECH, end_record.IS_PINNED
IS_INTERCEPTED = end_record.IS_INTERCEPTED

# Exchanges without an END, and bytes of their parts: 200 bodies of the usual bound
MOST_OPEN, MOST_OPEN_BYTES = 20_000, 100 << 20

_NO_BODY = Body(None, None, None)

cdef int N_PACKED = len(PACKED)

cdef OpenExchange _NOTHING = OpenExchange()


cdef class Assembly:
    """Makes rows of records; `rows` returns the whole ones."""
    cdef object _redactor
    cdef Names _names
    cdef bint _reads_urls, _reads_bodies
    cdef dict _echoes                       # of requests, by their maker; see `rows`
    cdef Batch _batch
    cdef dict _open
    cdef readonly int64_t _size             # memory of parts without an END
    cdef readonly int64_t evicted           # exchanges that lost their parts
    cdef public list to_record              # exchanges to be recorded, until someone takes them
    cdef readonly object failures           # see failures.py

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._names, self._reads_urls = redactor.names, redactor.reads_urls
        self._reads_bodies = redactor.reads_bodies
        self._echoes = {}
        self._batch = Batch(len(COLUMNS))
        self._open = {}
        self.to_record = []
        self.failures = Failures()

    def rows(self, records):
        """From the result of Ring.read. Returns a Batch, which the next call clears, unless `give`
        is called before."""
        self._batch.clear()
        for record in records:
            try:
                if type(record) is Whole:
                    self._whole(record)
                else:
                    self._part(record)
            except Exception as error:
                self.failures.add(error)
        self._echoes.clear()                # they have secrets
        return self._batch

    def give(self):
        """The last batch, which is the caller's from now on."""
        cdef Batch batch = self._batch
        self._batch = Batch(len(COLUMNS))
        return batch

    def leave_out(self, records):
        """Takes all but the exchange that ends these records, which is one that ended two
        processes."""
        cdef Py_ssize_t n = len(records) - 1
        last = records[n]
        if type(last) is Whole:
            key = None
            records = records[:n]
        else:
            key = last[1], last[2]
            records = [record for record in records
                       if type(record) is Whole or (record[1], record[2]) != key]
        batch = self.rows(records)
        if key is not None:
            self._size -= (<OpenExchange>self._open.pop(key, _NOTHING)).size
        self.failures.count("it ended two writers")
        return batch

    cdef int _part(self, tuple record) except -1:
        cdef dict opened = self._open
        cdef OpenExchange exchange
        cdef bytes payload
        cdef Kind kind
        kind, worker, request, payload = record
        if kind == ring_record.END:
            exchange = opened.pop((worker, request), _NOTHING)
            self._size -= exchange.size
            return self._end(worker, request, text_of(payload), payload, exchange)
        exchange = opened.get((worker, request))
        if exchange is None:
            exchange = opened[worker, request] = OpenExchange()
        self._size += add_part(exchange, kind, payload)
        while self._size > MOST_OPEN_BYTES or len(opened) > MOST_OPEN:
            self._evict()
        return 0

    cdef int _whole(self, Whole whole) except -1:
        cdef const Record *record = whole.records[whole.n - 1]
        cdef Text payload
        cdef RingExchange ended
        cdef OpenExchange exchange = None
        cdef int i
        payload.data, payload.n = payload_of(record), record.length
        if self._open:
            exchange = self._open.pop((record.worker, record.request), None)
        if exchange is not None:
            self._size -= exchange.size
        else:
            ended = ring_exchange_in(whole)
            if ended is not None:
                self.to_record.append(ended)
                return 0
            exchange = OpenExchange()
        for i in range(whole.n - 1):
            record = whole.records[i]
            add_part(exchange, <Kind>record.kind,
                     PyBytes_FromStringAndSize(payload_of(record), record.length))
        record = whole.records[whole.n - 1]
        return self._end(record.worker, record.request, payload, whole, exchange)

    cdef int _end(self, uint32_t worker, uint64_t request, Text payload, object owner,
                  OpenExchange parts) except -1:
        """`owner`: of the memory of `payload`."""
        cdef const EndRecord *end = <const EndRecord *>payload.data
        check_end(end, payload.n)
        if end.flags & end_record.IS_RECORDED:
            self.to_record.append(ring_exchange_of(end, owner, parts))
        if not end.flags & end_record.NOT_CAPTURED:
            self._row(worker, request, end, parts)
        return 0

    def parts(self, worker, request, whole):
        """The parts so far of an exchange without an END: their memory, and (kind, payload) of each
        record; of heads alone, unless `whole`. None: nothing has."""
        cdef OpenExchange exchange = self._open.get((worker, request))
        if exchange is None:
            return None
        records = [] if exchange.heads is None else [(HEADS, exchange.heads)]
        if whole:
            for kind, pieces in ((UP, exchange.up), (DOWN, exchange.down),
                                 (DOWN, untimed(exchange.timed))):
                if pieces:
                    records.append((kind, b"".join(pieces)))
            for piece in exchange.pieces or ():
                records.append((FRAMES_UP if piece.is_up else FRAMES_DOWN,
                                piece.at_us.to_bytes(8, "little") + piece.data))
        return exchange.size, records

    def _evict(self) -> None:
        oldest = next(iter(self._open))
        self._size -= (<OpenExchange>self._open.pop(oldest)).size
        self.evicted += 1

    cdef int _row(self, uint32_t worker, uint64_t request, const EndRecord *end,
                  OpenExchange parts) except -1:
        """Puts a row into the batch, or nothing at all."""
        cdef size_t n_cells = self._batch.n_cells
        try:
            return self._put_row(worker, request, end, parts)
        except BaseException:
            self._batch.drop_from(n_cells)
            raise

    cdef int _put_row(self, uint32_t worker, uint64_t request, const EndRecord *end,
                      OpenExchange parts) except -1:
        cdef Batch to = self._batch
        cdef Text[N_TEXTS] texts
        cdef Text up, down, raw_up, raw_down
        cdef str up_text = None, down_text = None, messages = None, messages_state = None
        cdef char[40] name
        cdef Value[MOST_VALUES] values          # those of the request's head
        cdef int n_values, _i
        cdef int64_t size
        cdef bint is_websocket
        cdef bytes plain_up = None, plain_down = None   # bodies that are kept as they came
        texts_of(end, texts)
        _traced = read_heads(texts, parts, &raw_up, &raw_down)   # keeps the text of raw_up
        up, down = raw_up, raw_down
        redactor = self._redactor
        heard = redactor.heard = []
        # Most heads go as they are, but for values of fields, and need no object
        if (end.origin_http or self._reads_urls or may_have_user(up.data, up.n) or may_have_user(
                down.data, down.n) or not (is_ascii(up.data, up.n) and is_ascii(down.data, down.n))):
            up_text, down_text = latin1_of(up), latin1_of(down)
            if end.origin_http:
                up_text, down_text = as_http2(up_text), as_http2(down_text)
            up_text = redactor.head(up_text)
            up = utf8_of(up_text)
        body_up = body_down = _NO_BODY
        is_websocket = end.flags & end_record.IS_WEBSOCKET or parts.pieces is not None
        if not is_websocket:
            plain_up = self._plain_up(end, parts, raw_up)
            if plain_up is None:
                body_up = self._body_up(end, parts, raw_up)
        redactor.heard = None
        if texts[<int>end_record.T_ADDED].n:
            heard = (heard or []) + latin1_of(texts[<int>end_record.T_ADDED]).split("\n")
        n_values = self._names.find(raw_up.data, raw_up.n, values)
        echoes = self._echoes_of(raw_up, values, n_values, heard) if n_values or heard else None
        if echoes is not None and has_part(echoes.parts, raw_down.data, raw_down.n):
            down_text = echoes.text(latin1_of(raw_down) if down_text is None else down_text)
        if down_text is not None:
            down_text = redactor.head(down_text)
            down = utf8_of(down_text)
        if is_websocket:
            messages, messages_state = self._messages(end, parts, raw_down, echoes)
        else:
            plain_down = self._plain_down(end, parts, raw_down, echoes)
            if plain_down is None:
                body_down = self._body_down(end, parts, raw_down, echoes)
        # In the order of COLUMNS
        to.text(name, snprintf(name, sizeof(name), b"%lu-%lu", <unsigned long>worker,
                               <unsigned long>request))
        put_kind(to, end)
        put_request(to, end, texts[<int>end_record.T_HOST], up)
        size = 400 + up.n + down.n + <int64_t>to.cells[to.n_cells - 1].n
        put_decision(to, end, texts)
        put_peers(to, end, texts)
        put_times(to, end)
        put_opening(to, end, texts)
        put_tls(to, end, texts)
        size += put_fingerprints(to, texts)
        put_http(to, end, raw_up, raw_down)
        put_size(to, plain_up, body_up.transferred)
        put_size(to, plain_down, body_down.transferred)
        put_size(to, plain_up, body_up.decoded)
        put_size(to, plain_down, body_down.decoded)
        to.any(body_up.state or None)
        to.any(body_down.state or None)
        if body_up is not _NO_BODY or body_down is not _NO_BODY:
            size += len(body_up.content or "") + len(body_down.content or "")
            size += len(body_up.trailers) + len(body_down.trailers)
        size += len(plain_up or b"") + len(plain_down or b"")
        to.number(size + (len(messages) if messages else 0))
        if up.data == raw_up.data and 0 < n_values < MOST_VALUES:
            self._batch.end_at(self._names.put_found(
                up.data, up.n, values, n_values,
                self._batch.begin_of(TEXT, self._names.most_of(up.data, up.n))))
        else:
            self._put_head(up)
        self._put_head(down)
        put_content(to, plain_up, body_up.content)
        put_content(to, plain_down, body_down.content)
        to.any(messages)
        to.any(messages_state)
        to.any(body_up.trailers or None)
        to.any(body_down.trailers or None)
        for _i in range(N_PACKED):
            to.nothing()                    # the store packs
        return 0

    # --- bodies: as they came, or read ----------------------------------------------

    cdef bytes _plain_up(self, const EndRecord *end, OpenExchange parts, Text head):
        if self._reads_bodies or end.flags & (end_record.UP_CHUNKED | end_record.UP_CUT):
            return None
        return plain_of(parts.up, end.body_up, head, True, None)

    cdef object _body_up(self, const EndRecord *end, OpenExchange parts, Text head):
        if end.body_up == UINT64_MAX:
            return _NO_BODY
        return make_body(
            Transferred(b"".join(parts.up or ()), end.body_up,
                        end.flags & end_record.UP_CHUNKED != 0,
                        end.flags & end_record.UP_CUT != 0),
            latin1_of(head), self._redactor, of_request=True)

    cdef bytes _plain_down(self, const EndRecord *end, OpenExchange parts, Text head,
                           object echoes):
        if self._reads_bodies or has_failed(end) or end.flags & (
                end_record.DOWN_CHUNKED | end_record.DOWN_CUT):
            return None
        return plain_of(parts.down, end.body_down, head, False,
                        None if echoes is None else echoes.parts)

    cdef object _body_down(self, const EndRecord *end, OpenExchange parts, Text head,
                           object echoes):
        if end.body_down == UINT64_MAX:
            return _NO_BODY
        return make_body(
            Transferred(b"".join(parts.down or untimed(parts.timed)), end.body_down,
                        end.flags & end_record.DOWN_CHUNKED != 0,
                        end.flags & end_record.DOWN_CUT != 0, has_failed(end)),
            latin1_of(head), self._redactor, echoes=echoes)

    cdef tuple _messages(self, const EndRecord *end, OpenExchange parts, Text head, object echoes):
        """The messages of a WebSocket, and their state."""
        if parts.heads is None:
            return None, "incomplete"       # frames can be read from the first one on
        if parts.pieces is None:
            return None, None
        # Not counted: another worker has finished it
        messages, state = read_websocket(
            parts.pieces, latin1_of(head), redactor=self._redactor, echoes=echoes,
            whole=sum([len(piece.data) for piece in parts.pieces]) == end.body_up + end.body_down)
        return messages, (
            "incomplete" if end.flags & (end_record.UP_CUT | end_record.DOWN_CUT) else state)

    cdef object _echoes_of(self, Text head, const Value *values, int n, list heard):
        """The values that the answer may repeat; None: nothing. `heard`: secrets of elsewhere."""
        cdef bytes lines = b"", line
        cdef int i
        for i in range(n):
            line = PyBytes_FromStringAndSize(
                head.data + values[i].line, values[i].end - values[i].line)
            lines = lines + b"\n" + line if i else line
        key = (lines, *heard) if heard else lines
        echoes = self._echoes.get(key)
        if echoes is None:
            echoes = self._echoes[key] = find_echoes(lines, heard or ())
        return echoes if echoes.parts else None

    cdef int _put_head(self, Text head) except -1:
        """In UTF-8."""
        cdef Names names = self._names
        if head.n == 0:
            return self._batch.nothing()
        return self._batch.end_at(names.put(head.data, head.n, self._batch.begin_of(
            TEXT, names.most_of(head.data, head.n))))


cdef bytes read_heads(const Text *texts, OpenExchange parts, Text *up, Text *down):
    """Both heads, before redaction; of the request with the trace that began here. If that makes a
    new text, `up` points into it, and it is returned; else None."""
    cdef const Text *trace = &texts[<int>end_record.T_TRACE]
    cdef bytes traced = None
    cdef Text request
    up[0], down.data, down.n = texts[<int>end_record.T_HEAD], "", 0
    if parts.heads is not None:
        split_heads(text_of(parts.heads), &request, down)
        if not up.n:                        # that of an upgrade's request is here
            up[0] = request
    if trace.n:
        traced = with_trace(up.data, up.n, trace.data, trace.n)
        if traced is not None:
            up[0] = text_of(traced)
    return traced
