# cython: language_level=3
"""An exchange to be recorded, as it came out of the ring: nothing is redacted. Most of it is still
there, so it lasts until the ring's `release`.

Times are Unix time. `up` and `down`: bodies with their framing. A number of bytes is 2**64 - 1
if it was not counted.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport UINT64_MAX, int64_t, uint64_t
from cutthrough.tape cimport end_record
from cutthrough.tape.end_record cimport N_TEXTS, EndRecord
from cutthrough.tape.gathered cimport Whole
from cutthrough.tape.open_exchange cimport OpenExchange, appended, check_end
from cutthrough.tape.record cimport HEADS, TIME_BYTES, TIMED_DOWN, UP, Record, payload_of
from cutthrough.tape.texts cimport Text, latin1_of, split_heads, text_of, texts_of
from cutthrough.outcome import TABLE as OUTCOMES

_REASONS = tuple(row.label for row in OUTCOMES)


cdef class RingExchange:
    # `reason`: the label of its outcome. `down_head`: "" if it had no room in the ring. `pieces`:
    # of a WebSocket, both ways. `times`: of the pieces of `down`. `wait_us`: between the request's
    # end and the head. `asked`: bytes of `up` that had come before each piece of `down`; None:
    # all of them before the head. `head_asked`: … before the head. `is_unanswered`: no head of an
    # answer has come. `added`: secrets that filters have added, which the answer may repeat

    cdef list timed_pieces(self):
        cdef const Record *record
        cdef list pieces
        cdef int i
        if self.timed is not None:
            return self.timed
        pieces = []
        for i in range(self.whole.n):
            record = self.whole.records[i]
            if record.kind == TIMED_DOWN:
                pieces.append(PyBytes_FromStringAndSize(payload_of(record), record.length))
        return pieces

    @property
    def user(self):
        return PyBytes_FromStringAndSize(self.user_text.data, self.user_text.n).decode(
            errors="replace")

    @property
    def host(self):
        return latin1_of(self.host_text)

    @property
    def up_head(self):
        return latin1_of(self.up_text)

    @property
    def down_head(self):
        return latin1_of(self.down_text)

    @property
    def added(self):
        return latin1_of(self.added_text).split("\n") if self.added_text.n else []

    @property
    def down(self):
        return [piece[TIME_BYTES:] for piece in self.timed_pieces()]

    @property
    def times(self):
        return [int.from_bytes(piece[:TIME_BYTES], "little") for piece in self.timed_pieces()]


cdef RingExchange ring_exchange_of(const EndRecord *end, object owner, OpenExchange parts):
    cdef RingExchange exchange = RingExchange.__new__(RingExchange)
    cdef Text heads
    heads.data, heads.n = NULL, 0
    if parts.heads is not None:
        heads = text_of(parts.heads)
    exchange.owners = owner, parts.heads
    fill_in(exchange, end, heads)
    exchange.up = b"".join(parts.up) if parts.up is not None else b""
    exchange.pieces, exchange.timed = parts.pieces or [], parts.timed or []
    # An answer that begins before the request's end has a place for each piece
    if parts.head_asked < end.body_up and end.body_up != UINT64_MAX:
        exchange.head_asked, exchange.asked = parts.head_asked, parts.asked or []
    return exchange


cdef RingExchange ring_exchange_in(Whole whole):
    cdef const Record *record = whole.records[whole.n - 1]
    cdef const EndRecord *end = <const EndRecord *>payload_of(record)
    cdef RingExchange exchange
    cdef Text heads
    cdef list up = None
    cdef uint64_t n_up = 0
    cdef int i = 0, n = whole.n - 1
    check_end(end, record.length)
    if end.flags & (end_record.IS_RECORDED | end_record.NOT_CAPTURED) != (
            end_record.IS_RECORDED | end_record.NOT_CAPTURED):
        return None
    while whole.records[i].kind == UP:
        record = whole.records[i]
        up = appended(up, PyBytes_FromStringAndSize(payload_of(record), record.length))
        n_up += record.length
        i += 1
    record = whole.records[i]
    if record.kind != HEADS or (n_up < end.body_up and end.body_up != UINT64_MAX):
        return None
    heads.data, heads.n = payload_of(record), record.length
    i += 1
    while i < n and whole.records[i].kind == TIMED_DOWN and (
            whole.records[i].length >= TIME_BYTES):
        i += 1
    if i != n:
        return None
    exchange = RingExchange.__new__(RingExchange)
    exchange.whole = whole
    fill_in(exchange, end, heads)
    exchange.up = b"".join(up) if up is not None else b""
    exchange.pieces = []
    return exchange


cdef int fill_in(RingExchange exchange, const EndRecord *end, Text heads) except -1:
    cdef Text[N_TEXTS] texts
    cdef Text up
    texts_of(end, texts)
    exchange.user_text = texts[<int>end_record.T_USER]
    exchange.host_text = texts[<int>end_record.T_HOST]
    exchange.up_text = texts[<int>end_record.T_HEAD]
    exchange.added_text = texts[<int>end_record.T_ADDED]
    exchange.down_text.data, exchange.down_text.n = "", 0
    if heads.data != NULL:
        split_heads(heads, &up, &exchange.down_text)
        if up.n and not exchange.up_text.n:
            exchange.up_text = up
    exchange.reason, exchange.port = _REASONS[end.outcome], end.port
    exchange.up_bytes, exchange.down_bytes = end.body_up, end.body_down
    exchange.is_intercepted = end.flags & end_record.IS_INTERCEPTED != 0
    exchange.up_chunked = end.flags & end_record.UP_CHUNKED != 0
    exchange.down_chunked = end.flags & end_record.DOWN_CHUNKED != 0
    exchange.was_cut = end.flags & (end_record.UP_CUT | end_record.DOWN_CUT) != 0
    exchange.is_unanswered = end.status == 0
    exchange.begun_us, exchange.head_at_us = end.end_us - end.total_us, end.end_us - end.receive_us
    exchange.wait_us = max(<int64_t>0, end.first_byte_us - end.send_us)
    return 0
