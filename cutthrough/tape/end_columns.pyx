# cython: language_level=3, boundscheck=False, wraparound=False
"""The columns that the END of an exchange has, in the order of exchange.columns."""

from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int64_t
from libc.string cimport memchr, memcmp
from cutthrough.tape cimport end_record
from cutthrough.tape.texts cimport (
    behind_blank, is_ascii, latin1_of, put_joined, put_some, utf8_of)
from cutthrough.outcome import TABLE as OUTCOMES
from cutthrough.session.model.counters import METHODS
from cutthrough.wire.openings import PROTOCOLS

# As the log shows them
_TLS_VERSIONS = {0x0300: "ssl3", 0x0301: "1.0", 0x0302: "1.1", 0x0303: "1.2",
                 0x0304: "1.3"}
_HTTP = {10: "1.0", 11: "1.1", 20: "2"}
_REASONS = tuple(row.label for row in OUTCOMES)


cdef int put_kind(Batch to, const EndRecord *end) except -1:
    to.number(end.end_us - end.total_us)
    to.number(end.end_us)
    if end.flags & end_record.IS_TUNNEL:
        return to.text(b"tunnel", 6)
    return to.text(b"request", 7)


cdef int put_request(Batch to, const EndRecord *end, Text host, Text head) except -1:
    cdef bint intercepted = end.flags & end_record.IS_INTERCEPTED != 0
    cdef bint is_v6 = host.n != 0 and memchr(host.data, b":"[0], host.n) != NULL
    cdef const char *target = behind_blank(head.data, head.data + head.n)
    cdef const char *protocol = NULL
    cdef str text = latin1_of(host)
    if target != NULL:
        protocol = behind_blank(target, head.data + head.n)
    if protocol != NULL:
        to.text(head.data, target - head.data - 1)
    else:
        to.any(METHODS[end.method])
    to.any(text)
    to.number(end.port)
    if is_v6:
        text = f"[{text}]"
    if protocol == NULL:
        return to.any(f"{text}:{end.port}")
    if end.port != (443 if intercepted else 80):
        text = f"{text}:{end.port}"
    text = f"https://{text}" if intercepted else f"http://{text}"
    return put_joined(to, utf8_of(text), target, protocol - target - 1)


cdef int put_decision(Batch to, const EndRecord *end, const Text *texts) except -1:
    cdef const Text *user = &texts[<int>end_record.T_USER]
    to.some(end.status)
    to.any(_REASONS[end.outcome])
    put_some(to, texts[<int>end_record.T_DETAIL])
    to.latin1(texts[<int>end_record.T_RULE].data, texts[<int>end_record.T_RULE].n)
    to.number(bit(end.flags, end_record.IS_REPORTED))
    if is_ascii(user.data, user.n):
        return put_some(to, user[0])
    return to.any(PyUnicode_DecodeUTF8(user.data, user.n, b"replace"))


cdef int put_peers(Batch to, const EndRecord *end, const Text *texts) except -1:
    to.latin1(texts[<int>end_record.T_CLIENT].data, texts[<int>end_record.T_CLIENT].n)
    to.some(end.client_port)
    put_some(to, texts[<int>end_record.T_PEER])
    to.some(end.peer_port)
    put_some(to, texts[<int>end_record.T_PARENT])
    to.number(bit(end.flags, end_record.IS_REUSED))
    to.number(bit(end.flags, end_record.WAS_RETRIED))
    to.number(end.bytes_up)
    return to.number(end.bytes_down)


cdef int put_times(Batch to, const EndRecord *end) except -1:
    to.some(end.head_us)
    to.some(end.auth_us)
    to.some(end.hook_us)
    to.some(end.dns_us)
    to.some(end.connect_us)
    to.some(end.origin_tls_us)
    if end.send_us and end.first_byte_us:
        to.some(min(<int64_t>end.send_us, end.first_byte_us))
    else:
        to.some(end.send_us)
    if end.first_byte_us:
        to.number(max(<int64_t>0, end.first_byte_us - end.send_us))
        to.number(end.receive_us)
    else:
        to.nothing()
        to.nothing()
    to.some(end.held_us)
    to.number(end.total_us)
    return to.some(end.client_tls_us)


cdef int put_opening(Batch to, const EndRecord *end, const Text *texts) except -1:
    to.any(PROTOCOLS[end.protocol] if end.protocol else None)
    put_some(to, texts[<int>end_record.T_SNI])
    put_some(to, texts[<int>end_record.T_ALPN])
    put_some(to, texts[<int>end_record.T_JA4])
    to.any(version_of(end.tls_version))
    to.number(bit(end.flags, end_record.OFFERS_ECH))
    to.number(bit(end.flags, end_record.IS_INTERCEPTED))
    return to.number(bit(end.flags, end_record.IS_PINNED))


cdef int put_tls(Batch to, const EndRecord *end, const Text *texts) except -1:
    to.any(version_of(end.client_tls))
    put_some(to, texts[<int>end_record.T_CLIENT_CIPHER])
    to.any(version_of(end.peer_tls))
    return put_some(to, texts[<int>end_record.T_PEER_CIPHER])


cdef int64_t put_fingerprints(Batch to, const Text *texts) except -1:
    cdef int64_t size = 0
    cdef int i
    for i in range(end_record.T_CLIENT_JA4, end_record.T_HTTP2 + 1):
        put_some(to, texts[i])
        size += texts[i].n
    return size


cdef int put_http(Batch to, const EndRecord *end, Text up, Text down) except -1:
    to.any(_HTTP.get(end.client_http))
    if end.origin_http in _HTTP:        # its frames compress heads
        to.any(_HTTP[end.origin_http])
        to.nothing()
        return to.nothing()
    if down.n >= 8 and memcmp(down.data, b"HTTP/1.", 7) == 0:
        to.latin1(down.data + 5, 3)
    else:
        to.nothing()
    to.some(up.n)
    return to.some(down.n)


cdef inline int bit(int flags, int mask) noexcept:
    return 1 if flags & mask else 0


cdef inline object version_of(int number):
    return _TLS_VERSIONS.get(number) if number else None
