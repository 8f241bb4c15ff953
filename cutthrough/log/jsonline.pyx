# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""The parts common to all line formats, and the line in JSON.

In JSON every octet from the wire that is not printable ASCII is escaped by itself, so that
each line stays one line and one object for any input (R37).
"""

from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, strlen
from cutthrough.log.hidden cimport put_hidden
from cutthrough.log.text cimport (
    Q_JSON, Quote, put_address, put_escaped, put_json, put_ms, put_number, put_string, put_text,
    put_time)
from cutthrough.net.address cimport Address, from_sockaddr
from cutthrough.net.linux cimport sockaddr_storage
from cutthrough.net.multiplex cimport is_stream, with_descriptor
from cutthrough.net.sysio cimport read_own_name
from cutthrough.net.tcpinfo cimport PathInfo, read_path
from cutthrough.net.transport cimport KERNEL, Agreed, Socket
from cutthrough.outcome cimport label_of
from cutthrough.policy.acl cimport NOT_ASKED
from cutthrough.session.judge.secure cimport agreed_behind, agreed_by, certified_name
from cutthrough.session.judge.source cimport name_of_source
from cutthrough.session.model.client cimport (
    Client, carries_tunnel, parent_of, peer_of, tried_of, user_of, worker_of_id)
from cutthrough.session.model.inside cimport is_intercepted, opening_of, prints_of
from cutthrough.session.model.prints cimport Prints
from cutthrough.session.model.request cimport Request
from cutthrough.session.stages.proxied cimport sender_of
from cutthrough.session.transfer.filtering cimport (
    CHANGED_REQUEST, CHANGED_RESPONSE, WAS_AT_BREAKPOINT, Filtering, Shown, filtering_of,
    shown_of)
from cutthrough.wire.authority cimport HOST_IPV6
from cutthrough.wire.clienthello cimport version_text
from cutthrough.wire.http1 cimport Head
from cutthrough.wire.names cimport is_connect
from cutthrough.wire.openings cimport TLS, Opening, alpn_of, protocol_text, server_name
from cutthrough.wire.proxy_header cimport N_TLVS, find_kept, name_of_tlv

cdef enum:
    MOST_METHOD = 32
    # Room for the fields after the URL: 29 of numbers and words, about 820 bytes, a source
    # of 150, and the texts of a rule and a hook, cut to what is left
    MOST_BEHIND = 1570
    MOST_OPENING = 600          # and for those of a ClientHello, if there is one
    MOST_AGREED = 680           # and for those of a client's handshake
    MOST_CERTIFICATE = 200      # of these, for the name in its certificate
    MOST_PRINTS = 680           # and for the client's fingerprints
    MOST_PEER = 120             # and for those of the handshake behind the proxy
    MOST_FILTERING = 80         # and for those of filters
    MOST_TLVS = 1024            # of a PROXY header: longer texts are cut
    MOST_HOOK = 350             # kept free for the hook's text and the source

# By wire's Method, eight characters each
cdef const char *METHODS = (b"-\0\0\0\0\0\0\0" b"GET\0\0\0\0\0" b"HEAD\0\0\0\0"
                            b"POST\0\0\0\0" b"PUT\0\0\0\0\0" b"DELETE\0\0"
                            b"OPTIONS\0" b"TRACE\0\0\0" b"CONNECT\0" b"SOCKS5\0\0"
                            b"SOCKS4\0\0" b"UDP\0\0\0\0\0" b"TUNNEL\0\0")


cdef class Line:

    @property
    def remembered(self):
        """Number of heads with fields kept for their line."""
        return 0

    cdef char *put(self, char *p, Client c, int outcome, const char *last) except NULL:
        return p

    cdef int skip(self, Client c) except -1:
        return 0

    cdef int note_head(self, Client c, const Head *head, const char *data) except -1:
        return 0


cdef class JsonLine(Line):

    def __init__(self, worker):
        self.worker = worker
        self.heading = b""

    cdef char *put(self, char *p, Client c, int outcome, const char *last) except NULL:
        cdef const Request *r = &c.request
        cdef int64_t total_us = c.context.ended_us - c.stamps.start_us
        p = put_time(put_text(p, b'{"time":"'))
        p = put_number(put_text(p, b'","id":"'), worker_of_id(c, self.worker))
        p[0] = b"-"
        p = put_number(p + 1, c.request_id)
        p = put_address(put_text(p, b'","client":"'), &c.address)
        if sender_of(c) != NULL:
            p = put_address(put_text(p, b'","proxied_by":"'), sender_of(c))
        p = put_text(p, b'","user":')
        p = put_string(p, user_of(c))
        if c.extras.tlvs is not None:
            p = put_tlvs(p, c.extras.tlvs, p + MOST_TLVS)
        if tried_of(c) is not None:
            p = put_string(put_text(p, b',"tried_user":'), tried_of(c))
        p = put_text(put_text(p, b',"kind":"'), kind_of(c))
        p = put_method(put_text(p, b'","method":"'), c)
        p = put_text(p, b'","host":')
        p = put_json(p, c.key, len(c.key) - 2) if r.port else put_text(p, b"null")
        p = put_number(put_text(p, b',"port":'), r.port)
        p = put_url(put_text(p, b',"url":"'), c, Q_JSON, last - MOST_BEHIND - (
            MOST_OPENING if opening_of(c) != NULL else 0) - (
            MOST_AGREED if c.sock.kind != KERNEL else 0) - (
            MOST_PRINTS if prints_of(c) is not None else 0) - (
            MOST_PEER if agreed_behind(c) != NULL else 0) - (
            MOST_FILTERING if c.extras.filtering is not None else 0))
        p = put_number(put_text(p, b'","status":'), r.status)
        p = put_text(put_text(p, b',"reason":"'), label_of(outcome))
        p = put_text(p, b'","peer":')
        if peer_of(c) != NULL:
            p[0] = b'"'
            p = put_address(p + 1, peer_of(c))
            p[0] = b'"'
            p += 1
        else:
            p = put_text(p, b"null")
        if r.hop.source:
            p = put_source(p, c)
        if r.hop.parent:
            p = put_string(put_text(p, b',"origin":' if r.for_origin else b',"parent":'),
                           parent_of(c))
            if c.extras.passage is not None and c.extras.passage.code:
                p = put_number(put_text(p, b',"parent_status":'), c.extras.passage.code)
        p = put_number(put_text(p, b',"bytes_up":'), c.relay.up.moved)
        p = put_number(put_text(p, b',"bytes_down":'), c.relay.down.moved)
        p = put_phase(put_text(p, b',"head_ms":'), c.stamps.head_us)
        p = put_phase(put_text(p, b',"auth_ms":'), c.stamps.auth_us)
        p = put_phase(put_text(p, b',"dns_ms":'), c.stamps.dns_us)
        p = put_phase(put_text(p, b',"connect_ms":'), c.stamps.connect_us)
        p = put_phase(put_text(p, b',"first_byte_ms":'), c.stamps.first_byte_us)
        if c.stamps.client_tls_us:
            p = put_ms(put_text(p, b',"client_tls_ms":'), c.stamps.client_tls_us)
        if c.stamps.origin_tls_us:
            p = put_ms(put_text(p, b',"origin_tls_ms":'), c.stamps.origin_tls_us)
        if is_stream(&c.sock):
            p = put_text(p, b',"client_http":"2"')
        if c.origin is not None and is_stream(&c.origin.sock):
            p = put_text(p, b',"origin_http":"2"')
        if agreed_behind(c) != NULL:
            p = put_behind(p, agreed_behind(c))
        if c.extras.filtering is not None:
            p = put_filtering(p, filtering_of(c))
        p = put_ms(put_text(p, b',"total_ms":'), total_us)
        p = put_text(p, b',"path":"')
        p = put_text(p, b"splice" if c.relay.up.spliced or c.relay.down.spliced else b"copy")
        p = put_number(put_text(p, b'","worker":'), self.worker)
        if r.is_tunnel and c.origin is not None:
            p = put_path(p, c)
        if r.rule != NOT_ASKED:
            p = put_word(put_text(p, b',"rule":'), c.snapshot.acl.label(r.rule),
                         p + (last - p) // 2)
            if r.reported:
                p = put_text(p, b',"report":true')
        if r.has_upgrade:
            p = put_text(p, b',"upgrade":true')
        if is_intercepted(c):
            p = put_text(p, b',"intercepted":true')
        elif r.pinned:
            p = put_text(p, b',"pinned":true')
        if opening_of(c) != NULL:
            p = put_opening(p, opening_of(c), last - MOST_HOOK)
        if c.sock.kind != KERNEL and agreed_by(c) != NULL:
            p = put_agreed(p, agreed_by(c), last - MOST_HOOK - MOST_CERTIFICATE)
            if certified_name(c) is not None:
                p = put_word(put_text(p, b',"client_certificate":'), certified_name(c),
                             p + MOST_CERTIFICATE)
        if prints_of(c) is not None:
            p = put_prints(p, prints_of(c))
        if c.extras.decision is not None:
            p = put_word(put_text(p, b',"hook":'), c.extras.decision.reason.encode(), last - 32)
        if c.stamps.hook_us:
            p = put_ms(put_text(p, b',"hook_ms":'), c.stamps.hook_us)
        p[0] = b"}"
        return p + 1


cdef bint own_address(const Socket *s, Address *out) noexcept nogil:
    cdef sockaddr_storage name
    return read_own_name(with_descriptor(s), &name) and from_sockaddr(&name, out)


cdef bytes tlv_of(Client c, int tlv):
    cdef size_t n = 0
    cdef const char *value = NULL
    cdef bytes tlvs = c.extras.tlvs
    if tlvs is not None:
        value = find_kept(tlvs, len(tlvs), tlv, &n)
    return None if value == NULL else value[:n]


cdef char *put_tlvs(char *p, bytes tlvs, const char *last) except NULL:
    """Writes the TLVs of a PROXY header by their names."""
    cdef const char *records = tlvs
    cdef const char *value
    cdef size_t n
    cdef int i
    p = put_text(p, b',"proxy_tlvs":{')
    for i in range(<int>N_TLVS):
        value = find_kept(records, len(tlvs), i, &n)
        if value != NULL and p + 32 < last:
            p = put_text(put_text(put_text(p, b'"'), name_of_tlv(i)), b'":"')
            p = put_escaped(p, value, n, Q_JSON, last - 8, True)
            p = put_text(p, b'",')
    if (p - 1)[0] == b",":
        p -= 1
    p[0] = b"}"
    return p + 1


cdef char *put_source(char *p, Client c) except NULL:
    """Writes the name of the source; if a connection was made, its address too."""
    cdef Address address
    p = put_string(put_text(p, b',"source":'), name_of_source(c).encode())
    if c.origin is not None and own_address(&c.origin.sock, &address):
        p = put_address(put_text(p, b',"source_address":"'), &address)
        p[0] = b'"'
        p += 1
    return p


cdef char *put_opening(char *p, const Opening *o, const char *last) noexcept:
    """Writes what the tunnel's first bytes were; of a ClientHello, its names and versions."""
    p = put_text(put_text(put_text(p, b',"tunnel_protocol":"'), protocol_text(o)), b'"')
    if o.protocol != TLS:
        return p
    if o.name_kind:
        p = put_text(p, b',"sni":"')
        p = put_escaped(p, server_name(o), o.name_len, Q_JSON, last - 300, True)
        p[0] = b'"'
        p += 1
    if o.alpn_len:
        p = put_text(p, b',"alpn":"')
        p = put_escaped(p, alpn_of(o), o.alpn_len, Q_JSON, last - 190, True)
        p[0] = b'"'
        p += 1
    if version_text(o.version)[0]:
        p = put_text(put_text(put_text(p, b',"tls_version":"'), version_text(o.version)), b'"')
    if o.offers_ech:
        p = put_text(p, b',"ech":true')
    if o.ja4[0]:
        p = put_text(put_text(put_text(p, b',"ja4":"'), o.ja4), b'"')
    if o.ja3[0]:
        p = put_text(put_text(put_text(p, b',"ja3":"'), o.ja3), b'"')
    return p


cdef char *put_agreed(char *p, const Agreed *agreed, const char *last) noexcept:
    """Writes the result of the client's TLS handshake with this proxy."""
    p = put_text(put_text(p, b',"client_tls_version":"'), version_text(agreed.version))
    if agreed.cipher != NULL:
        p = put_text(put_text(p, b'","client_cipher":"'), agreed.cipher)
    if agreed.name != NULL:
        p = put_text(p, b'","client_sni":"')
        p = put_escaped(p, agreed.name, strlen(agreed.name), Q_JSON, last - 90, True)
    if agreed.alpn_len:
        p = put_text(p, b'","client_alpn":"')
        p = put_escaped(p, agreed.alpn, agreed.alpn_len, Q_JSON, last - 40, True)
    return put_text(p, b'","client_resumed":true' if agreed.resumed else b'"')


cdef char *put_prints(char *p, Prints prints) except NULL:
    """Writes the fingerprints of the client's own connection."""
    if prints.ja4 is not None:
        p = put_string(put_text(p, b',"client_ja4":'), prints.ja4)
    if prints.ja3 is not None:
        p = put_string(put_text(p, b',"client_ja3":'), prints.ja3)
    if prints.http2 is not None:
        p = put_string(put_text(p, b',"http2_fingerprint":'), prints.http2)
    if prints.tcp is not None:
        p = put_string(put_text(p, b',"tcp_fingerprint":'), prints.tcp)
    return p


cdef char *put_behind(char *p, const Agreed *agreed) noexcept:
    """Writes the result of the proxy's TLS handshake with the origin or a parent."""
    p = put_text(put_text(p, b',"peer_tls_version":"'), version_text(agreed.version))
    if agreed.cipher != NULL:
        p = put_text(put_text(p, b'","peer_cipher":"'), agreed.cipher)
    return put_text(p, b'"')


cdef char *put_filtering(char *p, Filtering f) noexcept:
    """Writes what filters and operators have done."""
    if change_of(f) != NULL:
        p = put_text(put_text(put_text(p, b',"changed":"'), change_of(f)), b'"')
    if f.marks & WAS_AT_BREAKPOINT:
        p = put_text(p, b',"breakpoint":true')
    if held_us_of(f):
        p = put_ms(put_text(p, b',"held_ms":'), held_us_of(f))
    return p


cdef const char *change_of(Filtering f) noexcept:
    if f.marks & CHANGED_REQUEST:
        return b"both" if f.marks & CHANGED_RESPONSE else b"request"
    if f.marks & CHANGED_RESPONSE:
        return b"response"
    return NULL


cdef int64_t held_us_of(Filtering f) noexcept:
    return <int64_t>f.up_held_us + f.down_held_us


cdef const char *kind_of(Client c) noexcept:
    return b"tunnel" if carries_tunnel(c) else b"request"


cdef char *put_phase(char *p, uint64_t us) noexcept:
    """Writes milliseconds; null for a phase that did not begin."""
    return put_ms(p, us) if us else put_text(p, b"null")


cdef char *put_path(char *p, Client c) noexcept:
    """Writes the kernel's final round trip and retransmits of both sides."""
    cdef PathInfo info
    if read_path(&c.sock, &info):
        p = put_ms(put_text(p, b',"client_rtt_ms":'), info.rtt_us)
        p = put_number(put_text(p, b',"client_retransmits":'), info.retransmits)
    if read_path(&c.origin.sock, &info):
        p = put_ms(put_text(p, b',"origin_rtt_ms":'), info.rtt_us)
        p = put_number(put_text(p, b',"origin_retransmits":'), info.retransmits)
    return p


cdef char *put_word(char *p, bytes value, const char *last) except NULL:
    """Writes a JSON string that leaves room for the rest; null for None."""
    if value is None:
        return put_text(p, b"null")
    p[0] = b'"'
    p = put_escaped(p + 1, value, len(value), Q_JSON, last - 40, True)
    p[0] = b'"'
    return p + 1


cdef char *put_method(char *p, Client c) noexcept:
    cdef const char *data
    cdef size_t n = 0
    cdef Shown shown = shown_of(c)
    if shown.n:                                 # any method, as it went up
        data = shown.data
        while n < MOST_METHOD and data[n] != b" ":
            n += 1
        memcpy(p, data, n)
        return p + n
    return put_text(p, METHODS + 8 * c.request.method)


cdef char *put_url(char *p, Client c, Quote quote, const char *last) except NULL:
    cdef const Request *r = &c.request
    cdef Shown shown = shown_of(c)
    cdef const char *key
    if c.key is None or r.port == 0:
        if shown.path_len:                  # an unreadable target: see Connection.keep_refused
            return put_hidden(p, shown.data + shown.path_at, shown.path_len, quote, last - 3)
        p[0] = b"-"
        return p + 1
    key = c.key
    if not is_connect(r.method):
        p = put_text(p, b"https://" if is_intercepted(c) else b"http://")
    if r.host_kind == HOST_IPV6:
        p[0] = b"["
        p += 1
    # Leaves room for "]:65535" and two marks: its own, and that of a path without room
    p = put_escaped(p, key, len(c.key) - 2, quote, last - 13, True)
    if r.host_kind == HOST_IPV6:
        p[0] = b"]"
        p += 1
    if is_connect(r.method) or r.port != (443 if is_intercepted(c) else 80):
        p[0] = b":"
        p = put_number(p + 1, r.port)
    if shown.path_len:
        p = put_hidden(p, shown.data + shown.path_at, shown.path_len, quote, last - 3)
    return p
