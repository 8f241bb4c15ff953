# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The fields of a line by a format: a code, and its value for one ending."""

from libc.stdint cimport int64_t, uint32_t
from libc.string cimport memchr, memcpy, strlen
from libc.time cimport time_t, tm
from cutthrough.log.hidden cimport put_hidden
from cutthrough.log.jsonline cimport (
    change_of, held_us_of, kind_of, own_address, put_method, put_url, tlv_of)
from cutthrough.log.text cimport (
    put_address, put_escaped, put_ms, put_number, put_padded, put_text)
from cutthrough.net cimport linux
from cutthrough.net.address cimport Address
from cutthrough.net.multiplex cimport is_stream
from cutthrough.net.tcpinfo cimport PathInfo, read_path
from cutthrough.net.transport cimport Agreed
from cutthrough.outcome cimport N_OUTCOMES, OK, label_of, tag_of, token_of
from cutthrough.policy.acl cimport NOT_ASKED
from cutthrough.session.judge.secure cimport agreed_behind, agreed_by, certified_name
from cutthrough.session.judge.source cimport name_of_source
from cutthrough.session.model.client cimport (
    Client, parent_of, peer_of, tried_of, user_of, worker_of_id)
from cutthrough.session.model.inside cimport is_intercepted, opening_of, prints_of
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.model.request cimport Request
from cutthrough.session.model.stamps cimport Stamps
from cutthrough.session.stages.proxied cimport sender_of
from cutthrough.session.transfer.filtering cimport WAS_AT_BREAKPOINT, Shown, filtering_of, shown_of
from cutthrough.wire.chars cimport equals_lower
from cutthrough.wire.clienthello cimport version_text
from cutthrough.wire.names cimport M_CONNECT, is_connect
from cutthrough.wire.openings cimport Opening, alpn_of, protocol_text, server_name
from cutthrough.config.log_format import CODES, TLVS
from cutthrough.outcome import TABLE
from cutthrough.wire.proxy_header import TLVS as KEPT

cdef extern from "<time.h>" nogil:
    tm *gmtime_r(const time_t *seconds, tm *out)
    tm *localtime_r(const time_t *seconds, tm *out)
    size_t strftime(char *out, size_t most, const char *format, const tm *parts)

NUMBERS = {code: number for number, code in enumerate((
    "", "sn", "err_code", "err_detail", ">a", ">p", "la", "lp", "<a", "<A", "<p",
    "<la", "<lp", "ts", "tu", "tl", "tg", "tr", "tS", "dt", "<pt", "un", "ul", "ui", "rm",
    "ru", "rp", ">rs", ">rd", ">rP", "rv", ">h", ">Hs", "mt", "st", ">st", "<st", "Ss", "Sh",
    "ct::id", "ct::reason", "ct::worker", "ct::path", "ct::rule", "ct::hook", "ct::kind",
    "ct::tried_user", "ct::proxied_by", "ct::tlv", "ct::client_tls_version", "ct::client_cipher",
    "ct::client_sni", "ct::client_alpn", "ct::client_resumed", "ct::client_certificate",
    "ct::client_ja4", "ct::client_ja3", "ct::client_ja4_r", "ct::client_ja4_o",
    "ct::client_ja4_ro", "ct::http2_fingerprint", "ct::tcp_fingerprint",
    "ct::tunnel_protocol", "ct::sni", "ct::alpn", "ct::tls_version", "ct::ja4", "ct::ja3",
    "ct::ech", "ct::intercepted", "ct::pinned", "ct::report", "ct::upgrade", "ct::changed",
    "ct::breakpoint", "ct::parent", "ct::parent_status", "ct::source", "ct::client_http",
    "ct::origin_http", "ct::peer_tls_version", "ct::peer_cipher", "ct::held_ms",
    "ct::client_tls_ms", "ct::origin_tls_ms", "ct::head_ms", "ct::auth_ms", "ct::hook_ms",
    "ct::dns_ms", "ct::connect_ms", "ct::first_byte_ms", "ct::total_ms",
    "ct::total_s", "ct::start", "ct::haproxy_timers", "ct::haproxy_state", "ct::color",
    "ct::uncolor", "ct::client_rtt_ms",
    "ct::client_retransmits", "ct::origin_rtt_ms", "ct::origin_retransmits"))}
assert TLVS == KEPT
assert set(NUMBERS) == {"", *CODES} and len(NUMBERS) == <int>N_STEPS


def haproxy_state(row):
    """HAProxy's session state at disconnection, of a row of `outcome`: who ended it (in small
    letters by a timeout), and when."""
    late = "timeout" in row.label
    if row.fault in ("", "proxy", "policy"):
        return b"PR--" if row.fault else b"----"
    if row.fault == "client":
        return (b"cR--" if late else b"PR--") if row.status else b"cD--" if late else b"CD--"
    connecting = row.token.startswith(("dns", "connection_refused", "connection_timeout",
                                       "destination", "tls"))
    return (b"s" if late else b"S") + (
        b"C" if connecting else b"H" if row.status else b"D") + b"--"


def color_of(row):
    """The escape sequence of a terminal: green, yellow for a refusal, else red."""
    return b"\x1b[32m" if not row.fault else (
        b"\x1b[33m" if row.fault in ("client", "policy") else b"\x1b[31m")


cdef list states = [haproxy_state(row) for row in TABLE]
cdef const char *state_texts[N_OUTCOMES]
cdef list color_texts = [color_of(row) for row in TABLE]
cdef const char *colors[N_OUTCOMES]
for number in range(<int>N_OUTCOMES):
    state_texts[<int>number] = <bytes>states[number]
    colors[<int>number] = <bytes>color_texts[number]


cdef char *put_field(char *p, Step *step, Client c, const Ending *ending, tuple noted,
                     const char *last) except NULL:
    cdef const Request *r = &c.request
    cdef int code = step.code
    cdef int outcome = ending.outcome
    cdef const linux.timespec *now = &ending.now
    cdef Stamps *at = &c.stamps
    cdef Address address
    if code == S_SECONDS:
        return put_number(p, now.tv_sec)
    if code == S_MS:
        return put_number(p, now.tv_nsec // 1000000)
    if code == S_TOTAL:
        return put_number(p, (c.context.ended_us - at.start_us) // 1000)
    if code == S_CLIENT:
        return put_address(p, &c.address)
    if code == S_TAG:
        if outcome == OK and r.is_tunnel:
            return put_text(p, b"TCP_TUNNEL")
        return put_text(p, tag_of(outcome))
    if code == S_STATUS:
        return put_padded(p, r.status, 3)
    if code == S_BYTES_DOWN:
        return put_number(p, c.relay.down.moved)
    if code == S_METHOD:
        return put_method(p, c)
    if code == S_URL:
        return put_long(p, step, c, last)
    if code == S_USER:
        return put_value(p, step, c.login, last)
    if code == S_LOGIN:
        return put_value(p, step, user_of(c), last)
    if code == S_HIERARCHY:
        if r.hop.parent:
            return put_text(p, b"FIRSTUP_PARENT")
        return put_text(p, b"HIER_NONE" if peer_of(c) == NULL else b"HIER_DIRECT")
    if code == S_PEER:
        return p if peer_of(c) == NULL else put_address(p, peer_of(c))
    if code == S_TYPE or code == S_IDENT:
        return p
    if code == S_VERSION:
        # Another protocol has no version of HTTP
        return p if c.snapshot is None or r.method > M_CONNECT else (
            put_text(p, b"2.0" if is_stream(&c.sock) else b"1.1" if r.minor else b"1.0"))
    if code == S_LOCALTIME or code == S_GMT:
        return put_date(p, step, now.tv_sec)
    if code == S_FIELD:
        if noted is not None:
            return put_value(p, step, noted[step.field], last)
        return put_head_field(p, step, c, last)
    if code == S_SN:
        return put_number(p, ending.sequence)
    if code == S_ERR_CODE:
        return p if outcome == OK else put_text(p, label_of(outcome))
    if code == S_ERR_DETAIL:
        return put_text(p, token_of(outcome))
    if code == S_CLIENT_PORT:
        return put_number(p, c.address.port)
    if code == S_PEER_NAME or code == S_HOST:
        return put_long(p, step, c, last)
    if code == S_PEER_PORT:
        return p if peer_of(c) == NULL else put_number(p, r.port)
    if code == S_PORT:
        return p if r.port == 0 else put_number(p, r.port)
    if code == S_PATH:
        return put_long(p, step, c, last)
    if code == S_SCHEME:
        return p if r.port == 0 or is_connect(r.method) else put_text(
            p, b"https" if is_intercepted(c) else b"http")
    if code == S_BYTES:
        return put_number(p, c.relay.up.moved + c.relay.down.moved)
    if code == S_BYTES_UP:
        return put_number(p, c.relay.up.moved)
    if code == S_BEGAN:
        return put_seconds(p, now, c.context.ended_us - at.start_us)
    if code == S_DNS:
        return p if at.dns_us == 0 else put_number(p, at.dns_us // 1000)
    if code == S_PEER_TIME:
        return p if at.first_byte_us == 0 else put_number(p, at.first_byte_us // 1000)
    if code == S_LOCAL or code == S_LOCAL_PORT:
        if not own_address(&c.sock, &address):
            return p
        return put_address(p, &address) if code == S_LOCAL else (
            put_number(p, address.port))
    if code == S_SOURCE or code == S_SOURCE_PORT:
        if c.origin is None or not own_address(&c.origin.sock, &address):
            return p
        return put_address(p, &address) if code == S_SOURCE else (
            put_number(p, address.port))
    return put_own(p, step, c, ending, last)


cdef char *put_own(char *p, Step *step, Client c, const Ending *ending,
                   const char *last) except NULL:
    """Writes a value that squid has no code for."""
    cdef const Request *r = &c.request
    cdef int code = step.code
    cdef Stamps *at = &c.stamps
    cdef int64_t us
    cdef PathInfo info
    if code == S_ID:
        p = put_number(p, worker_of_id(c, ending.worker))
        p[0] = b"-"
        return put_number(p + 1, c.request_id)
    if code == S_REASON:
        return put_text(p, label_of(ending.outcome))
    if code == S_WORKER:
        return put_number(p, ending.worker)
    if code == S_RELAY:
        return put_text(p, b"splice" if c.relay.up.spliced or c.relay.down.spliced
                        else b"copy")
    if code == S_RULE:
        return p if r.rule == NOT_ASKED else (
            put_value(p, step, c.snapshot.acl.label(r.rule), last))
    if code == S_HOOK:
        return p if c.extras.decision is None else (
            put_value(p, step, c.extras.decision.reason.encode(), last))
    if code == S_KIND:
        return put_text(p, kind_of(c))
    if code == S_TRIED:
        return put_value(p, step, tried_of(c), last)
    if code == S_PROXIED_BY:
        return p if sender_of(c) == NULL else put_address(p, sender_of(c))
    if code == S_TLV:
        return put_value(p, step, tlv_of(c, step.field), last)
    if code == S_OWN_CERTIFICATE:
        return put_value(p, step, certified_name(c), last)
    if S_OWN_TLS <= code < S_OWN_CERTIFICATE:
        return put_agreed(p, step, agreed_by(c), last)
    if S_OWN_JA4 <= code <= S_OWN_TCP:
        return put_print(p, step, prints_of(c), last)
    if S_PROTOCOL <= code <= S_ECH:
        return p if opening_of(c) == NULL else put_part(p, step, opening_of(c), last)
    if code == S_INTERCEPTED:
        return put_text(p, b"intercepted") if is_intercepted(c) else p
    if code == S_PINNED:
        return put_text(p, b"pinned") if r.pinned else p
    if S_REPORT <= code <= S_ORIGIN_TLS_MS:
        return put_more(p, step, c, last)
    if code == S_TOTAL_MS:
        return put_ms(p, c.context.ended_us - at.start_us)
    if S_HEAD_MS <= code < S_TOTAL_MS:
        us = (at.head_us if code == S_HEAD_MS else
              at.auth_us if code == S_AUTH_MS else
              at.hook_us if code == S_HOOK_MS else
              at.dns_us if code == S_DNS_MS else
              at.connect_us if code == S_CONNECT_MS else at.first_byte_us)
        return put_ms(p, us) if us else p
    if code == S_TOTAL_S:
        return put_ms(p, (c.context.ended_us - at.start_us) // 1000)
    if code == S_START:
        us = c.context.ended_us - at.start_us
        us = ending.now.tv_sec * 1000 + ending.now.tv_nsec // 1000000 - us // 1000
        p = put_date(p, step, us // 1000)
        p[0] = b"."
        return put_padded(p + 1, us % 1000, 3)
    if code == S_TIMERS:
        return put_timers(p, at, c.context.ended_us)
    if code == S_TERMINATION:
        return put_text(p, state_texts[ending.outcome])
    if code == S_COLOR:
        return put_text(p, colors[ending.outcome])
    if code == S_UNCOLOR:
        return put_text(p, b"\x1b[0m")
    if code >= S_ORIGIN_RTT and c.origin is None:
        return p
    if not read_path(&c.sock if code < S_ORIGIN_RTT else &c.origin.sock, &info):
        return p
    if code == S_CLIENT_RTT or code == S_ORIGIN_RTT:
        return put_ms(p, info.rtt_us)
    return put_number(p, info.retransmits)


cdef char *put_timers(char *p, const Stamps *at, int64_t ended_us) noexcept:
    """Writes HAProxy's timers in milliseconds: the head, user, hook and DNS, the connection, the
    response's head, all. -1: not reached."""
    cdef int64_t[5] timers = [
        at.head_us, <int64_t>at.auth_us + at.hook_us + at.dns_us, at.connect_us, at.first_byte_us,
        ended_us - at.start_us]
    cdef bint reached
    cdef int i
    for i in range(5):
        if i:
            p[0] = b"/"
            p += 1
        reached = i == 4 or i == 1 or timers[i] > 0
        p = put_number(p, timers[i] // 1000) if reached else put_text(p, b"-1")
    return p


cdef char *put_print(char *p, Step *step, Prints prints, const char *last) except NULL:
    cdef int code = step.code
    if prints is None:
        return p
    return put_value(p, step, (
        prints.ja4 if code == S_OWN_JA4 else prints.ja3 if code == S_OWN_JA3 else
        prints.ja4_r if code == S_OWN_JA4_R else prints.ja4_o if code == S_OWN_JA4_O else
        prints.ja4_ro if code == S_OWN_JA4_RO else prints.http2 if code == S_OWN_HTTP2 else
        prints.tcp), last)


cdef char *put_more(char *p, Step *step, Client c, const char *last) except NULL:
    cdef const Request *r = &c.request
    cdef int code = step.code
    cdef uint32_t us
    if code == S_REPORT:
        return put_text(p, b"report") if r.reported else p
    if code == S_UPGRADE:
        return put_text(p, b"upgrade") if r.has_upgrade else p
    if code == S_PARENT:
        return put_value(p, step, parent_of(c), last) if r.hop.parent else p
    if code == S_PARENT_STATUS:
        return put_number(p, c.extras.passage.code) if (
            r.hop.parent and c.extras.passage is not None and c.extras.passage.code) else p
    if code == S_SOURCE_NAME:
        return put_value(p, step, name_of_source(c).encode(), last) if r.hop.source else p
    if code == S_CLIENT_HTTP:
        return put_text(p, b"2") if is_stream(&c.sock) else p
    if code == S_ORIGIN_HTTP:
        return put_text(p, b"2") if c.origin is not None and is_stream(&c.origin.sock) else p
    if code == S_PEER_TLS:
        return p if agreed_behind(c) == NULL else (
            put_text(p, version_text(agreed_behind(c).version)))
    if code == S_PEER_CIPHER:
        return p if agreed_behind(c) == NULL or agreed_behind(c).cipher == NULL else (
            put_text(p, agreed_behind(c).cipher))
    if code == S_CLIENT_TLS_MS or code == S_ORIGIN_TLS_MS:
        us = c.stamps.client_tls_us if code == S_CLIENT_TLS_MS else c.stamps.origin_tls_us
        return put_ms(p, us) if us else p
    if c.extras.filtering is None:
        return p
    if code == S_CHANGED:
        return p if change_of(filtering_of(c)) == NULL else (
            put_text(p, change_of(filtering_of(c))))
    if code == S_BREAKPOINT:
        return put_text(p, b"breakpoint") if filtering_of(c).marks & WAS_AT_BREAKPOINT else p
    return put_ms(p, held_us_of(filtering_of(c))) if held_us_of(filtering_of(c)) else p


cdef char *put_long(char *p, Step *step, Client c, const char *last) except NULL:
    cdef const Request *r = &c.request
    cdef const char *key
    cdef Shown shown
    if step.code == S_URL:
        return put_url(p, c, step.quote, last)
    if step.code == S_PATH:
        shown = shown_of(c)
        if shown.path_len == 0 or r.port == 0:
            return p
        return put_hidden(p, shown.data + shown.path_at, shown.path_len, step.quote, last - 3)
    if r.port == 0 or (step.code == S_PEER_NAME and peer_of(c) == NULL):
        return p
    key = c.key
    return put_escaped(p, key, len(c.key) - 2, step.quote, last - 3, True)


cdef char *put_agreed(char *p, Step *step, const Agreed *a, const char *last) except NULL:
    """Writes a part of the client's TLS handshake with this proxy; nothing without TLS."""
    cdef int code = step.code
    if a == NULL:
        return p
    if code == S_OWN_TLS:
        return put_text(p, version_text(a.version))
    if code == S_OWN_CIPHER:
        return p if a.cipher == NULL else put_text(p, a.cipher)
    if code == S_OWN_SNI:
        return p if a.name == NULL else put_quoted(p, step, a.name, strlen(a.name), last)
    if code == S_OWN_ALPN:
        return put_quoted(p, step, a.alpn, a.alpn_len, last) if a.alpn_len else p
    return put_text(p, b"resumed") if a.resumed else p


cdef char *put_part(char *p, Step *step, const Opening *o, const char *last) except NULL:
    """Writes a part of the tunnel's first bytes; nothing if they are no ClientHello."""
    cdef int code = step.code
    if code == S_SNI:
        return put_quoted(p, step, server_name(o), o.name_len, last) if o.name_len else p
    if code == S_ALPN:
        return put_quoted(p, step, alpn_of(o), o.alpn_len, last) if o.alpn_len else p
    if code == S_PROTOCOL:
        return put_text(p, protocol_text(o))
    if code == S_TLS:
        return put_text(p, version_text(o.version))
    if code == S_ECH:
        return put_text(p, b"ech") if o.offers_ech else p
    return put_text(p, o.ja4) if code == S_JA4 else put_text(p, o.ja3)


cdef char *put_value(char *p, Step *step, bytes value, const char *last) except NULL:
    if value is None or len(value) == 0:
        return p
    return put_quoted(p, step, value, len(value), last)


cdef char *put_quoted(char *p, Step *step, const char *data, size_t n,
                      const char *last) except NULL:
    cdef bint spaced = False
    cdef size_t i
    if step.is_shell:
        for i in range(n):
            spaced = spaced or data[i] == b" "
    if spaced:
        p[0] = b'"'
        p = put_hidden(p + 1, data, n, step.quote, last - 4)
        p[0] = b'"'
        return p + 1
    return put_hidden(p, data, n, step.quote, last - 3)


cdef char *put_head_field(char *p, Step *step, Client c, const char *last) except NULL:
    """Writes a field of the head as it went up: each line is `Name: value`."""
    cdef const char *at
    cdef const char *end
    cdef const char *stop
    cdef size_t n = step.text_len
    cdef Shown shown = shown_of(c)
    if shown.data == NULL:
        return p
    at = shown.data
    stop = at + shown.n
    while at < stop:
        end = <const char *>memchr(at, b"\r", stop - at)
        if end == NULL:
            break
        if end - at > <ssize_t>n and at[n] == b":" and equals_lower(at, step.text, n):
            at += n + 1
            while at < end and at[0] == b" ":
                at += 1
            return put_quoted(p, step, at, end - at, last)
        at = end + 2
    return p


cdef char *put_date(char *p, Step *step, time_t second) noexcept:
    cdef tm parts
    if step.made_s != second:
        step.made_s = second
        if step.code == S_GMT:
            gmtime_r(&second, &parts)
        else:
            localtime_r(&second, &parts)
        step.made_len = strftime(step.made, MOST_TIME, step.text, &parts)
    memcpy(p, step.made, step.made_len)
    return p + step.made_len


cdef char *put_seconds(char *p, const linux.timespec *now, int64_t ago_us) noexcept:
    cdef int64_t at_ms = now.tv_sec * 1000 + now.tv_nsec // 1000000 - ago_us // 1000
    return put_ms(p, at_ms)             # three decimals
