# cython: language_level=3, boundscheck=False, wraparound=False
"""Doors to cutthrough.wire: its parsers and builders, called from Python.

A source is bytes, or (address, length). A refusal is returned as the label of its outcome.
"""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memset
from cutthrough.outcome cimport label_of
from cutthrough.outcome import NAMES
from cutthrough.wire.chars cimport text_of
from cutthrough.wire.chunks cimport Chunks, scan_chunks, start_chunks
from cutthrough.wire.connect cimport Value
from cutthrough.wire.date cimport DATE_BYTES, build_date
from cutthrough.wire.edits cimport (
    KNOWN_CLIENT, KNOWN_USER, N_KNOWN, HeadEdits)
from cutthrough.wire.framing cimport Framing, read_request_framing, read_response_framing
from cutthrough.wire.hops cimport answer_as_last
from cutthrough.wire.http1 cimport (
    MAX_FIELDS, Field, Head, HeadLimits, has_token, parse_request, parse_response)
from cutthrough.wire.proxy_header cimport (
    MOST_KEPT, N_TLVS, ProxyHeader, find_kept, keep_tlvs, name_of_tlv, parse_proxy_header)
from cutthrough.wire.refused cimport show_refused
from cutthrough.wire.reply cimport reply_with_hint, reply_with_retry
from cutthrough.wire.rewrite cimport (
    ADD_CLOSE, BY_HTTP2, DROP_LENGTH, KEEP_CHUNKED, KEEP_UPGRADE, REWRITE_ROOM, Span, Writing,
    build_request_head, build_response_head)
from cutthrough.wire.socks cimport (
    MOST_SOCKS_REPLY, SocksGreeting, SocksPassword, SocksRequest, build_datagram_header,
    build_socks4_reply, build_socks5_reply, parse_datagram_header, parse_greeting,
    parse_password, parse_socks4_request, parse_socks5_request)
from cutthrough.wire.authority cimport Target
from cutthrough.wire.trace cimport find_trace, with_trace
from cutthrough.wire.target cimport read_target


def read_request(source, seen=0, **limits):
    """Returns the parts of the head as a dict, None for "more", or a refusal's label."""
    return read_head(source, seen, limits, False)


def read_response(source, seen=0, **limits):
    """Returns the same for a response head."""
    return read_head(source, seen, limits, True)


def lists_token(source, name, token):
    """Returns whether `token` is in the list of this field (a FieldName number)."""
    cdef Head head
    cdef size_t n
    cdef const char *buf = text_of(source, &n)
    cdef HeadLimits most = HeadLimits(8192, 16384, MAX_FIELDS)
    if parse_request(&head, buf, n, 0, &most) <= 0:
        raise ValueError("not a whole, valid request head")
    return bool(has_token(&head, buf, name, <bytes>token, len(token)))


cdef object read_head(source, size_t seen, dict limits, bint response):
    cdef Head head
    cdef HeadLimits most
    cdef size_t n
    cdef const char *buf = text_of(source, &n)
    cdef bytearray copy
    cdef int got
    cdef Field field
    most.line_bytes = limits.get("line_bytes", 8192)
    most.head_bytes = limits.get("head_bytes", 16384)
    most.n_fields = limits.get("n_fields", MAX_FIELDS)
    if response and not isinstance(source, tuple):
        copy = bytearray(source)            # obs-fold is replaced in place
        buf = copy
    if response:
        got = parse_response(&head, <char *>buf, n, seen, &most)
    else:
        got = parse_request(&head, buf, n, seen, &most)
    if got <= 0:
        return label_of(-got).decode() if got else None
    target = buf[head.target:head.target + head.target_len]
    said = {"minor": head.minor, "length": head.length, "fields": []}
    if head.lenient:
        said["lenient"] = True
    if response:
        said |= {"status": head.status, "reason": target}
    else:
        said |= {"method": buf[head.start:head.start + head.method_len],
                 "known_method": head.method, "target": target}
    for field in head.fields[:head.n_fields]:
        said["fields"].append((buf[field.start:field.start + field.name_len],
                               buf[field.value:field.value + field.value_len], field.name))
    return said


def read_framing(source, request_method=None):
    """Returns (kind, length, persistent) or a refusal's label for a whole, valid head.

    `source` is a request head. With `request_method` (a Method number) it is the head of a
    response to such a request. kind: "none", "length", "chunked", "until-close".
    """
    cdef Framing out
    cdef int got = frame(&out, source, request_method)
    if got < 0:
        return label_of(-got).decode()
    return ("none", "length", "chunked", "until-close")[out.kind], out.length, bool(out.persistent)


def passes_trailers(source, request_method=None):
    """Returns whether trailers of a message with this whole, valid head are sent on."""
    cdef Framing out
    return frame(&out, source, request_method) == 0 and bool(out.trailers)


cdef int frame(Framing *out, source, request_method) except 1:
    cdef Head head
    cdef HeadLimits limits = HeadLimits(65536, 65536, MAX_FIELDS)
    cdef size_t n
    cdef const char *buf = text_of(source, &n)
    cdef bytearray copy
    cdef int got
    if request_method is None:
        got = parse_request(&head, buf, n, 0, &limits)
    else:
        copy = bytearray(buf[:n])
        buf = copy
        got = parse_response(&head, <char *>buf, n, 0, &limits)
    if got <= 0:
        raise ValueError("not a whole, valid head")
    if request_method is None:
        return read_request_framing(&head, buf, out)
    return read_response_framing(&head, buf, request_method, out)


def last_answer(source):
    """Returns the label of the Outcome that answers Max-Forwards: 0, or "ok"."""
    cdef Head head
    cdef HeadLimits limits = HeadLimits(65536, 65536, MAX_FIELDS)
    cdef size_t n
    cdef const char *buf = text_of(source, &n)
    if parse_request(&head, buf, n, 0, &limits) <= 0:
        raise ValueError("not a whole, valid request head")
    return label_of(answer_as_last(&head, buf)).decode()


def show_refused_target(source):
    """Returns the target of a whole, valid request head as logs show a refused one."""
    cdef Head head
    cdef HeadLimits limits = HeadLimits(16384, 16384, MAX_FIELDS)
    cdef char[16384 + 3] out
    cdef uint32_t length, shown = 0
    cdef size_t n
    cdef const char *buf = text_of(source, &n)
    if parse_request(&head, buf, n, 0, &limits) <= 0:
        raise ValueError("not a whole, valid request head")
    length = show_refused(out, &head, buf, &shown)
    return out[length - shown:length].decode("ascii")


def rewrite_request(source, pseudonym=b"cutthrough", upgrade=False, cap=None, by_http2=False):
    """Returns (head, path) as bytes, or a refusal's label, for a whole, valid head."""
    cdef Head head
    cdef Target target
    cdef HeadLimits limits = HeadLimits(65536, 65536, MAX_FIELDS)
    cdef size_t n
    cdef const char *buf = text_of(source, &n)
    cdef Span path
    if parse_request(&head, buf, n, 0, &limits) <= 0:
        raise ValueError("not a whole, valid request head")
    cdef int got = read_target(&target, &head, buf, False)
    if got < 0:
        return label_of(-got).decode()
    cdef bytearray out = bytearray(head.length + REWRITE_ROOM if cap is None else cap)
    cdef Writing writing = Writing(
        out, len(out), pseudonym, len(pseudonym), upgrade * KEEP_UPGRADE | by_http2 * BY_HTTP2)
    got = build_request_head(&writing, &head, buf, &target, 80, &path)
    if got < 0:
        return label_of(-got).decode()
    return bytes(out[:got]), bytes(out[path.at:path.at + path.n])


def rewrite_response(source, pseudonym=b"cutthrough", close=False, chunked=True,
                     upgrade=False, cap=None, contradicts=False, by_http2=False):
    """Returns the head as bytes, or a refusal's label, for a whole, valid head."""
    cdef int options = (close * ADD_CLOSE | chunked * KEEP_CHUNKED | upgrade * KEEP_UPGRADE
                        | contradicts * DROP_LENGTH | by_http2 * BY_HTTP2)
    cdef Head head
    cdef HeadLimits limits = HeadLimits(65536, 65536, MAX_FIELDS)
    cdef size_t n
    cdef const char *text = text_of(source, &n)
    cdef bytearray buf = bytearray(text[:n])
    if parse_response(&head, buf, len(buf), 0, &limits) <= 0:
        raise ValueError("not a whole, valid response head")
    cdef bytearray out = bytearray(
        head.length + head.n_fields + REWRITE_ROOM if cap is None else cap)
    cdef Writing writing = Writing(out, len(out), pseudonym, len(pseudonym), options)
    cdef int got = build_response_head(&writing, &head, buf, NULL)
    return label_of(-got).decode() if got < 0 else bytes(out[:got])


cdef class ChunkScanner:
    """The chunk scanner as an object: feed(bytes) -> (consumed, bytes to send on)."""
    cdef Chunks chunks

    def __init__(self, decode=False, trailers=True, lenient=False):
        start_chunks(&self.chunks, decode, trailers, lenient)

    @property
    def done(self):
        return bool(self.chunks.done)

    @property
    def padded(self):
        return bool(self.chunks.padded)

    def feed(self, bytes data):
        """Returns (consumed, output), or a refusal's label, after which feed no more."""
        cdef bytearray copy = bytearray(data)
        cdef size_t out_len
        cdef int64_t got = scan_chunks(&self.chunks, copy, len(data), &out_len)
        if got < 0:
            return label_of(<int>-got).decode()
        return got, self.before() + bytes(copy[:out_len])

    def feed_at(self, address, n):
        """Like `feed`, in place, on n bytes at this address. Returns (consumed, out_len,
        bytes to send before the output), or the label."""
        cdef size_t out_len
        cdef int64_t got = scan_chunks(&self.chunks, <char *><size_t>address, n, &out_len)
        if got < 0:
            return label_of(<int>-got).decode()
        return got, out_len, self.before()

    def before(self):
        return self.chunks.before[:self.chunks.before_len]


def render(label, close=True, body=True, known_user=False, retry_s=0, hint=0):
    """Returns the reply for the outcome of this label, b"" if it has none."""
    cdef size_t length
    cdef const char *text
    if hint:
        text = reply_with_hint(hint, close, body, known_user, &length)
    else:
        text = reply_with_retry(
            NAMES[label], close, body, known_user, retry_s, &length)
    return text[:length] if text != NULL else b""


def date(int64_t epoch_s):
    """Returns the date as str; for tests and tools."""
    cdef char out[DATE_BYTES]
    build_date(out, epoch_s)
    return out[:DATE_BYTES].decode()


def read_proxy_header(source, seen=0):
    """Returns a dict of length, address (packed; b"": none), port and the kept TLVs by name, None
    for "more", or a refusal's label. The parser has no use for `seen`."""
    cdef char[MOST_KEPT] kept
    cdef const char *value
    cdef size_t kept_len, value_len
    cdef ProxyHeader header
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    cdef int got = parse_proxy_header(&header, data, n)
    if got <= 0:
        return label_of(-got).decode() if got else None
    length = {0: 0, 4: 4, 6: 16}[header.family]
    kept_len = keep_tlvs(kept, &header)
    tlvs = {}
    for i in range(<int>N_TLVS):
        value = find_kept(kept, kept_len, i, &value_len)
        if value != NULL:
            tlvs[name_of_tlv(i).decode()] = value[:value_len]
    return {"length": got, "address": (<const char *>header.address)[:length],
            "port": header.port, "tlvs": tlvs}


def read_greeting(source, seen=0):
    """Returns a dict of length, offers_none and offers_password, None for "more", or a
    refusal's label. No parser of SOCKS has a use for `seen`."""
    cdef SocksGreeting greeting
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    cdef int got = parse_greeting(&greeting, data, n)
    if got <= 0:
        return label_of(-got).decode() if got else None
    return {"length": got, "offers_none": bool(greeting.offers_none),
            "offers_password": bool(greeting.offers_password)}


def read_password(source, seen=0):
    """Returns a dict of length, name and secret, or the same."""
    cdef SocksPassword password
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    cdef int got = parse_password(&password, data, n)
    if got <= 0:
        return label_of(-got).decode() if got else None
    return {"length": got, "name": password.name[:password.name_len],
            "secret": password.secret[:password.secret_len]}


def read_socks5_request(source, seen=0):
    """Returns a dict of length, command, host, kind, address and port, or the same."""
    cdef SocksRequest request
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    return told_request(parse_socks5_request(&request, data, n), &request)


def read_socks4_request(source, seen=0):
    cdef SocksRequest request
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    return told_request(parse_socks4_request(&request, data, n), &request)


cdef object told_request(int got, const SocksRequest *request):
    if got <= 0:
        return label_of(-got).decode() if got else None
    return {"length": got, "command": request.command} | told_target(&request.target)


cdef dict told_target(const Target *target):
    length = (0, 4, 16)[target.host_kind]
    return {"host": target.host[:target.host_len].decode(), "port": target.port,
            "address": (<const char *>target.address)[:length]}


def read_datagram_header(source):
    """Returns a dict of length, host, address and port; None: it is to be dropped."""
    cdef Target target
    cdef size_t n
    cdef const char *data = text_of(source, &n)
    cdef int got = parse_datagram_header(&target, data, n)
    return {"length": got} | told_target(&target) if got else None


def write_socks5_reply(code, packed=b"", port=0):
    cdef char out[MOST_SOCKS_REPLY]
    cdef int family = {0: 0, 4: 4, 16: 6}[len(packed)]
    return out[:build_socks5_reply(out, code, family, packed, port)]


def write_socks4_reply(granted):
    cdef char out[MOST_SOCKS_REPLY]
    return out[:build_socks4_reply(out, granted)]


def write_datagram_header(packed, port):
    cdef char out[MOST_SOCKS_REPLY]
    cdef int family = {4: 4, 16: 6}[len(packed)]
    return out[:build_datagram_header(out, family, packed, port)]


def trace_in(bytes head):
    cdef size_t n
    cdef const char *value = find_trace(head, len(head), &n)
    return None if value == NULL else value[:n]


def with_trace_of(bytes head, bytes trace):
    return with_trace(head, len(head), trace, len(trace))


def change_head(HeadEdits edits, bytes head, bytes user, bytes client, size_t cap):
    """The head after the edits; b"": there is no room within `cap`."""
    cdef Value[N_KNOWN] known
    cdef bytearray room = bytearray(head + bytes(cap - len(head)))
    cdef size_t n
    memset(&known[0], 0, sizeof(known))
    known[<int>KNOWN_USER] = Value(user, len(user))
    known[<int>KNOWN_CLIENT] = Value(client, len(client))
    n = edits.apply(room, len(head), cap, known)
    return bytes(room[:n])
