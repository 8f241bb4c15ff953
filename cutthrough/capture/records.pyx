# cython: language_level=3, boundscheck=False, wraparound=False
"""Records of the ring -> rows of the store: the parts of an exchange are put together.

A worker sends HEADS, pieces of bodies and END; END makes the row. Parts without
an END yet are kept in memory within bounds, oldest first out. All is redacted here.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeLatin1
from libc.stdint cimport UINT64_MAX, int64_t, uint32_t, uint64_t
from libc.string cimport memcpy
from cutthrough.capture cimport end_record, ring
from cutthrough.capture.end_record cimport EndRecord
from cutthrough.capture.ring cimport Kind     # this form is seen when it changes
from cutthrough.capture.taped cimport Taped
from cutthrough.capture.bodies import Body, make_body
from cutthrough.capture.heads import as_http2
from cutthrough.capture.messages import Piece, read_websocket
from cutthrough.capture.redaction import Redactor
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.session.counters import METHODS
from cutthrough.wire.openings import PROTOCOLS

# For tests, which write records too
HEADS, UP, DOWN, END = ring.HEADS, ring.UP, ring.DOWN, ring.END
FRAMES_UP, FRAMES_DOWN = ring.FRAMES_UP, ring.FRAMES_DOWN
TIMED_DOWN = ring.TIMED_DOWN
IS_RECORDED, NOT_CAPTURED = end_record.IS_RECORDED, end_record.NOT_CAPTURED
IS_TUNNEL, IS_REPORTED = end_record.IS_TUNNEL, end_record.IS_REPORTED
HAS_UPGRADE, IS_WEBSOCKET = end_record.HAS_UPGRADE, end_record.IS_WEBSOCKET
UP_CHUNKED, DOWN_CHUNKED = end_record.UP_CHUNKED, end_record.DOWN_CHUNKED
UP_CUT, DOWN_CUT = end_record.UP_CUT, end_record.DOWN_CUT
OFFERS_ECH, IS_PINNED = end_record.OFFERS_ECH, end_record.IS_PINNED
IS_INTERCEPTED = end_record.IS_INTERCEPTED

# As the log shows them
_TLS_VERSIONS = {0x0300: "ssl3", 0x0301: "1.0", 0x0302: "1.1", 0x0303: "1.2",
                 0x0304: "1.3"}

# Exchanges without an END, and bytes of their bodies: 200 bodies of the usual bound
MOST_OPEN, MOST_OPEN_BYTES = 20_000, 100 << 20

# The columns of a row, in order; store.py has their types
COLUMNS = (
    "request", "begun_us", "ended_us", "kind", "method", "host", "port", "url", "status",
    "reason", "detail", "rule", "reported", "user", "client", "client_port", "peer",
    "peer_port", "parent", "reused", "retried", "bytes_up", "bytes_down", "head_us", "auth_us",
    "hook_us", "dns_us", "connect_us", "origin_tls_us", "send_us", "wait_us", "receive_us",
    "held_us", "total_us", "client_tls_us", "protocol", "sni", "alpn", "ja4", "tls_version",
    "ech", "intercepted", "pinned", "client_tls_version", "client_cipher", "peer_tls_version",
    "peer_cipher", "client_http", "origin_http", "request_head_bytes", "response_head_bytes",
    "request_body_bytes", "response_body_bytes", "request_content_bytes",
    "response_content_bytes", "request_body_state", "response_body_state", "bytes",
    "request_head", "response_head", "request_body", "response_body", "messages",
    "messages_state", "request_trailers", "response_trailers")

_REASONS = tuple(row.label for row in OUTCOMES)
_NO_BODY = Body(None, None, None)
_HTTP = {10: "1.0", 11: "1.1", 20: "2"}


cdef class _Open:
    """The parts of an exchange so far; None: none of this kind."""
    cdef bytes heads
    cdef list up
    cdef list down
    cdef list pieces
    cdef list timed                         # pieces of an answer, each behind its time
    cdef list asked                         # bytes of `up` that came before each of these
    cdef uint64_t head_asked                # … and before the answer's head
    cdef uint64_t n_up
    cdef int64_t size


cdef _Open _NOTHING = _Open()


cdef class Assembly:
    """Makes rows of records; `rows` returns the whole ones."""
    cdef object _redactor
    cdef dict _open
    cdef readonly int64_t _size             # bytes of parts without an END
    cdef readonly int64_t evicted           # exchanges that lost their parts
    cdef public list taped                  # exchanges to be recorded, until someone takes them

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._open = {}
        self.taped = []

    def rows(self, records):
        """Raises ValueError for a payload that is too short."""
        cdef const EndRecord *end
        cdef list made = []
        cdef dict opened = self._open
        cdef _Open one
        cdef bytes payload
        cdef Kind kind
        for record in records:
            kind, worker, request, payload = record
            if kind == ring.END:
                one = opened.pop((worker, request), _NOTHING)
                self._size -= one.size
                end = <const EndRecord *>PyBytes_AS_STRING(payload)
                check_size(end, PyBytes_GET_SIZE(payload))
                if end.flags & end_record.IS_RECORDED:
                    self.taped.append(taped_of(payload, one))
                if not end.flags & end_record.NOT_CAPTURED:
                    made.append(self._row(f"{worker}-{request}", payload, one))
                continue
            one = opened.get((worker, request))
            if one is None:
                one = opened[worker, request] = _Open()
            if kind == ring.HEADS:
                one.heads = payload
                one.head_asked = one.n_up
            elif kind == ring.UP:
                one.up = appended(one.up, payload)
                one.n_up += PyBytes_GET_SIZE(payload)
            elif kind == ring.DOWN:
                one.down = appended(one.down, payload)
            elif kind == ring.TIMED_DOWN:
                if PyBytes_GET_SIZE(payload) < 8:
                    raise ValueError("a piece without its time")
                one.timed = appended(one.timed, payload)
                one.asked = appended(one.asked, one.n_up)
            elif kind == ring.FRAMES_UP or kind == ring.FRAMES_DOWN:
                one.pieces = appended(one.pieces, Piece(
                    kind == ring.FRAMES_UP, int.from_bytes(payload[:8], "little"), payload[8:]))
            one.size += len(payload)
            self._size += len(payload)
            if self._size > MOST_OPEN_BYTES or len(opened) > MOST_OPEN:
                self._evict()
        return made

    def _evict(self) -> None:
        oldest = next(iter(self._open))
        self._size -= (<_Open>self._open.pop(oldest)).size
        self.evicted += 1

    cdef tuple _row(self, str name, bytes payload, _Open parts):
        cdef const EndRecord *end = <const EndRecord *>PyBytes_AS_STRING(payload)
        cdef const char *at = PyBytes_AS_STRING(payload) + sizeof(EndRecord)
        cdef str user, host, rule, parent, client, peer, sni, alpn, ja4
        cdef str client_cipher, peer_cipher, up_head, down_head = "", word, url, detail, spoken
        cdef Py_ssize_t up_bytes, down_bytes
        cdef uint64_t size
        cdef int flags
        cdef bint is_websocket
        user = text_of(end, &at, end_record.T_USER)
        host = text_of(end, &at, end_record.T_HOST)
        rule = text_of(end, &at, end_record.T_RULE)
        parent = text_of(end, &at, end_record.T_PARENT)
        client = text_of(end, &at, end_record.T_CLIENT)
        peer = text_of(end, &at, end_record.T_PEER)
        sni = text_of(end, &at, end_record.T_SNI)
        alpn = text_of(end, &at, end_record.T_ALPN)
        ja4 = text_of(end, &at, end_record.T_JA4)
        client_cipher = text_of(end, &at, end_record.T_CLIENT_CIPHER)
        peer_cipher = text_of(end, &at, end_record.T_PEER_CIPHER)
        up_head = text_of(end, &at, end_record.T_HEAD)
        detail = text_of(end, &at, end_record.T_DETAIL)
        if parts.heads is not None:
            up_head, down_head = heads_of(parts.heads, up_head)
        up_bytes, down_bytes = len(up_head), len(down_head)
        spoken = _HTTP.get(end.origin_http)
        if spoken is not None:          # its frames compress heads
            up_bytes = down_bytes = 0
        elif down_head.startswith("HTTP/1."):
            spoken = down_head[5:8]
        redactor = self._redactor
        up = down = _NO_BODY
        messages = messages_state = None
        flags = end.flags
        is_websocket = flags & end_record.IS_WEBSOCKET or parts.pieces is not None
        if is_websocket and parts.heads is None:
            messages_state = "incomplete"    # frames can be read from the first one on
        elif parts.pieces is not None:
            # Not counted: another worker has finished it
            messages, messages_state = read_websocket(
                parts.pieces, down_head, redactor=redactor,
                whole=sum([len(piece.data) for piece in parts.pieces])
                == end.body_up + end.body_down)
            if flags & (end_record.UP_CUT | end_record.DOWN_CUT):
                messages_state = "incomplete"
        if end.body_up != UINT64_MAX and not is_websocket:
            up = make_body(b"".join(parts.up or ()), up_head, end.body_up,
                           chunked=flags & end_record.UP_CHUNKED != 0,
                           cut=flags & end_record.UP_CUT != 0, redactor=redactor)
        if end.body_down != UINT64_MAX and not is_websocket:
            down = make_body(b"".join(parts.down or untimed(parts.timed)), down_head, end.body_down,
                             chunked=flags & end_record.DOWN_CHUNKED != 0,
                             cut=flags & end_record.DOWN_CUT != 0, redactor=redactor)
        if end.origin_http:
            up_head, down_head = as_http2(up_head), as_http2(down_head)
        up_head = redactor.head(up_head)
        down_head = redactor.head(down_head)
        word, url = request_of(end, host, up_head)
        if not user.isascii():
            user = user.encode("latin-1").decode(errors="replace")
        size = 400 + len(up_head) + len(down_head) + len(url) + len(messages or "")
        if up is not _NO_BODY or down is not _NO_BODY:
            size += len(up.content or "") + len(down.content or "")
            size += len(up.trailers) + len(down.trailers)
        return (
            name, end.end_us - end.total_us, end.end_us,
            "tunnel" if flags & end_record.IS_TUNNEL else "request", word, host, end.port,
            url, some(end.status), _REASONS[end.outcome], detail or None, rule,
            bit(flags, end_record.IS_REPORTED), user or None, client,
            some(end.client_port), peer or None, some(end.peer_port), parent or None,
            bit(flags, end_record.IS_REUSED), bit(flags, end_record.WAS_RETRIED),
            end.bytes_up, end.bytes_down, some(end.head_us), some(end.auth_us),
            some(end.hook_us), some(end.dns_us), some(end.connect_us),
            some(end.origin_tls_us),
            some(min(<int64_t>end.send_us, end.first_byte_us)
                 if end.send_us and end.first_byte_us else end.send_us),
            max(<int64_t>0, end.first_byte_us - end.send_us) if end.first_byte_us else None,
            end.receive_us if end.first_byte_us else None, some(end.held_us), end.total_us,
            some(end.client_tls_us),
            PROTOCOLS[end.protocol] if end.protocol else None, sni or None, alpn or None,
            ja4 or None, version_of(end.tls_version), bit(flags, end_record.OFFERS_ECH),
            bit(flags, end_record.IS_INTERCEPTED), bit(flags, end_record.IS_PINNED),
            version_of(end.client_tls), client_cipher or None, version_of(end.peer_tls),
            peer_cipher or None, _HTTP.get(end.client_http), spoken,
            some(up_bytes), some(down_bytes), up.transferred, down.transferred,
            up.decoded, down.decoded, up.state or None, down.state or None, size,
            up_head or None, down_head or None, up.content, down.content,
            messages, messages_state, up.trailers or None, down.trailers or None)


cdef Taped taped_of(bytes payload, _Open parts):
    cdef const EndRecord *end = <const EndRecord *>PyBytes_AS_STRING(payload)
    cdef const char *at = PyBytes_AS_STRING(payload) + sizeof(EndRecord)
    cdef Taped made = Taped.__new__(Taped)
    cdef const char *down = NULL
    cdef uint32_t n
    cdef int i
    made.user_line = made.host_line = made.up_lines = made.down_lines = b""
    for i in range(<int>end_record.N_TEXTS):
        n = end.lengths[i]
        if i == <int>end_record.T_USER:
            made.user_line = PyBytes_FromStringAndSize(at, n)
        elif i == <int>end_record.T_HOST:
            made.host_line = PyBytes_FromStringAndSize(at, n)
        elif i == <int>end_record.T_HEAD:
            made.up_lines = PyBytes_FromStringAndSize(at, n)
        at += n
    if parts.heads is not None:
        n = split_heads(parts.heads, &at, &down)
        if n and not made.up_lines:
            made.up_lines = PyBytes_FromStringAndSize(at, n)
        made.down_lines = PyBytes_FromStringAndSize(
            down, PyBytes_AS_STRING(parts.heads) + PyBytes_GET_SIZE(parts.heads) - down)
    made.up = b"".join(parts.up) if parts.up is not None else b""
    made.pieces, made.timed = parts.pieces or [], parts.timed or []
    made.reason, made.port = _REASONS[end.outcome], end.port
    made.up_bytes, made.down_bytes = end.body_up, end.body_down
    made.is_intercepted = end.flags & end_record.IS_INTERCEPTED != 0
    made.up_chunked = end.flags & end_record.UP_CHUNKED != 0
    made.down_chunked = end.flags & end_record.DOWN_CHUNKED != 0
    made.was_cut = end.flags & (end_record.UP_CUT | end_record.DOWN_CUT) != 0
    # An answer that begins before the request's end has a place for each piece
    if parts.head_asked < end.body_up and end.body_up != UINT64_MAX:
        made.head_asked, made.asked = parts.head_asked, parts.asked or []
    made.begun_us, made.head_at_us = end.end_us - end.total_us, end.end_us - end.receive_us
    made.wait_us = max(<int64_t>0, end.first_byte_us - end.send_us)
    return made


cdef list untimed(list pieces):
    cdef bytes piece
    return [piece[8:] for piece in pieces] if pieces is not None else []


cdef int check_size(const EndRecord *end, size_t n) except -1:
    cdef size_t wanted = sizeof(EndRecord)
    cdef int i = 0
    while n >= wanted and i < <int>end_record.N_TEXTS:
        wanted += end.lengths[i]
        i += 1
    if n < wanted:
        raise ValueError("the end of an exchange has not all of its fields")
    return 0


cdef str text_of(const EndRecord *end, const char **at, int number):
    """The text of this number, which begins at `at`. All must be taken, in order."""
    cdef uint32_t n = end.lengths[number]
    if n == 0:
        return ""
    at[0] += n
    return PyUnicode_DecodeLatin1(at[0] - n, n, NULL)


cdef tuple heads_of(bytes heads, str up_head):
    """Both heads; that of an upgrade's request is here."""
    cdef const char *up = NULL
    cdef const char *down = NULL
    cdef uint32_t n = split_heads(heads, &up, &down)
    if n and not up_head:
        up_head = PyUnicode_DecodeLatin1(up, n, NULL)
    return up_head, PyUnicode_DecodeLatin1(
        down, PyBytes_AS_STRING(heads) + PyBytes_GET_SIZE(heads) - down, NULL)


cdef uint32_t split_heads(bytes heads, const char **up, const char **down) except? 0:
    """Where both begin; returns the length of the first one."""
    cdef Py_ssize_t size = PyBytes_GET_SIZE(heads)
    cdef uint32_t n = 0
    if size < <Py_ssize_t>sizeof(n):
        raise ValueError("heads without their length")
    up[0] = PyBytes_AS_STRING(heads) + sizeof(n)
    memcpy(&n, PyBytes_AS_STRING(heads), sizeof(n))
    if n > size - <Py_ssize_t>sizeof(n):
        raise ValueError("heads that are shorter than their length")
    down[0] = up[0] + n
    return n


cdef tuple request_of(const EndRecord *end, str host, str head):
    """The method and the URL; of a tunnel, host and port."""
    cdef bint intercepted = end.flags & end_record.IS_INTERCEPTED != 0
    cdef list words = head.split(" ", 2) if head else []
    if ":" in host:
        host = f"[{host}]"
    if len(words) < 3:
        return METHODS[end.method], f"{host}:{end.port}"
    if end.port == (443 if intercepted else 80):
        return words[0], f"{'https' if intercepted else 'http'}://{host}{words[1]}"
    return words[0], f"{'https' if intercepted else 'http'}://{host}:{end.port}{words[1]}"


cdef inline int bit(int flags, int one) noexcept:
    return 1 if flags & one else 0


cdef inline object some(int64_t number):
    return number if number else None


cdef inline object version_of(int number):
    return _TLS_VERSIONS.get(number) if number else None


cdef inline list appended(list pieces, object piece):
    if pieces is None:
        return [piece]
    pieces.append(piece)
    return pieces
