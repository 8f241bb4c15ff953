# cython: language_level=3
"""Every way a request, a tunnel or a connection can end.

One row each. Replies, the access log, metrics, the admin page and the docs all read this
table, so that one word names one thing everywhere. The module knows nothing else: no socket,
no HTTP, no policy.

`status` 0 means that no reply is made, because it is too late to send one or the client has
gone. `socks` is the code of the reply to a SOCKS5 request (RFC 1928 section 6), 0 if `status` is
0; version 4 has one code for every refusal. `token` is the Proxy-Status error of RFC 9209 section
2.3. `tag` is squid's result code. `fault` is the party that caused the ending.
"""

from typing import NamedTuple


class Row(NamedTuple):
    label: str
    status: int
    socks: int
    token: str
    tag: str
    fault: str       # "", "client", "policy", "network", "origin", "proxy"
    meaning: str


# In the order of the enum in outcome.pxd.
ROWS = (
    ("ok", 0, 0, "", "TCP_MISS", "", "the exchange or tunnel ended normally"),

    ("bad_request", 400, 1, "http_request_error", "NONE", "client",
        "the head breaks RFC 9112: a line, a field or a control character"),
    ("bad_target", 400, 8, "http_request_error", "NONE", "client",
        "the request target or Host is invalid or ambiguous"),
    ("bad_framing", 400, 1, "http_request_error", "NONE", "client",
        "the length of the request body is ambiguous or invalid"),
    ("bad_proxy_header", 400, 1, "http_request_error", "NONE", "client",
        "no header of the PROXY protocol, or an invalid one, where one is required"),
    ("bad_socks", 400, 1, "http_request_error", "NONE", "client",
        "a message breaks the SOCKS protocol, or is of another one"),
    ("unsupported_command", 501, 7, "http_request_error", "NONE", "client",
        "a SOCKS command other than CONNECT and, in version 5, UDP ASSOCIATE"),
    ("bad_credentials_field", 400, 1, "http_request_error", "NONE", "client",
        "more than one Proxy-Authorization field"),
    ("no_origin", 400, 1, "http_request_error", "NONE", "client",
        "the request is one for a web server: this is a proxy, and no `origin` is configured for it"),
    ("unsupported_coding", 501, 1, "http_request_error", "NONE", "client",
        "a transfer coding other than chunked"),
    ("unsupported_protocol", 501, 1, "http_request_error", "NONE", "client",
        "extended CONNECT, or a request for connect-udp or connect-ip"),
    ("unsupported_version", 505, 1, "http_request_error", "NONE", "client",
        "neither HTTP/1.0 nor HTTP/1.1"),
    ("head_too_large", 431, 1, "http_request_error", "NONE", "client",
        "the head is longer than the limit, or has more fields"),
    ("uri_too_long", 414, 1, "http_request_error", "NONE", "client",
        "the request line is longer than the limit"),
    ("body_too_large", 413, 1, "http_request_error", "NONE", "client",
        "the declared body is longer than the limit"),
    ("head_timeout", 408, 1, "http_request_error", "NONE", "client",
        "the head did not arrive in time"),
    ("body_timeout", 408, 1, "http_request_error", "TCP_MISS_ABORTED", "client",
        "the request body stopped arriving, or came too slowly"),
    ("final_recipient", 200, 1, "proxy_internal_response", "NONE", "",
        "OPTIONS with Max-Forwards: 0, which the proxy answers itself"),
    ("trace_refused", 405, 1, "proxy_internal_response", "NONE", "client",
        "TRACE with Max-Forwards: 0, which the proxy does not echo"),
    ("misdirected", 421, 1, "http_request_error", "NONE", "client",
        "the request names another host than its CONNECT, or than its connection (host_strict)"),
    ("tls_failed", 0, 0, "", "NONE", "client",
        "the client speaks no TLS where the listener requires it, or breaks its rules"),
    ("tls_unshared", 0, 0, "", "NONE", "client",
        "client and listener have no version, cipher or protocol of TLS in common"),
    ("tls_name", 0, 0, "", "NONE", "client",
        "the client names no server, or one that no certificate of the listener has"),
    ("tls_alert", 0, 0, "", "NONE", "client",
        "the client ended the handshake: it does not accept the certificate, for one"),
    ("certificate_rejected", 0, 0, "", "NONE", "client",
        "the client of an intercepted connection does not accept the certificate made for it"),
    ("no_certificate", 0, 0, "", "NONE", "proxy",
        "the authority of interceptions can sign no certificate for this name"),
    ("tls_certificate", 0, 0, "", "NONE", "policy",
        "the client's certificate is missing, or not accepted"),
    ("tls_timeout", 0, 0, "", "NONE", "client",
        "the handshake was not complete in time"),
    ("bad_stream", 0, 0, "", "NONE", "client",
        "a request of HTTP/2 is malformed (RFC 9113 section 8.1.1), or overflows its window: its "
        "stream was reset"),
    ("bad_http2", 0, 0, "", "NONE", "client",
        "frames break RFC 9113: the connection was ended by GOAWAY"),
    ("http2_resets", 0, 0, "", "NONE", "client",
        "too many streams were reset, malformed or refused: GOAWAY, ENHANCE_YOUR_CALM"),
    ("http2_flood", 0, 0, "", "NONE", "client",
        "too many frames that do nothing (PING, SETTINGS …): GOAWAY, ENHANCE_YOUR_CALM"),
    ("http2_headers", 0, 0, "", "NONE", "client",
        "a header block has too many frames or octets: GOAWAY, ENHANCE_YOUR_CALM"),

    ("auth_required", 407, 2, "http_request_denied", "TCP_DENIED", "policy",
        "no credentials"),
    ("auth_failed", 407, 2, "http_request_denied", "TCP_DENIED", "policy",
        "the credentials are wrong or malformed"),
    ("auth_expired", 407, 2, "http_request_denied", "TCP_DENIED", "policy",
        "the credentials are right, but the user has expired"),
    ("auth_throttled", 429, 2, "http_request_denied", "TCP_DENIED", "policy",
        "too many wrong passwords for this name from this address"),
    ("destination_denied", 403, 2, "http_request_denied", "TCP_DENIED", "policy",
        "a rule forbids this destination"),
    ("path_denied", 403, 2, "http_request_denied", "TCP_DENIED", "policy",
        "a rule forbids this path, or the path is none that a rule allows"),
    ("address_denied", 403, 2, "destination_ip_prohibited", "TCP_DENIED", "policy",
        "the destination's address is not public"),
    ("port_denied", 403, 2, "http_request_denied", "TCP_DENIED", "policy",
        "CONNECT to a port that is not allowed"),
    ("policy_unavailable", 503, 1, "proxy_internal_error", "TCP_DENIED", "proxy",
        "a hook gave no answer about the request or its user, so it is refused"),
    ("loop_detected", 508, 2, "proxy_loop_detected", "TCP_DENIED", "policy",
        "the request came from, or would go to, this proxy itself"),
    ("sender_denied", 403, 2, "http_request_denied", "TCP_DENIED", "policy",
        "the caller is in none of the networks that this listener serves"),
    ("protocol_denied", 0, 0, "", "TCP_DENIED", "policy",
        "a rule forbids the protocol of a tunnel's first bytes"),
    ("sni_denied", 0, 0, "", "TCP_DENIED", "policy",
        "a rule forbids the server name in a tunnel's ClientHello, or demands one"),
    ("ja4_denied", 0, 0, "", "TCP_DENIED", "policy",
        "a rule forbids the fingerprint of a tunnel's ClientHello"),
    ("peek_timeout", 0, 0, "", "TCP_DENIED", "policy",
        "a rule depends on a tunnel's first bytes, which did not come, or not all, in time"),
    ("fault_status", 503, 1, "proxy_internal_response", "TCP_DENIED", "policy",
        "a fault of the rule answers, with the status that it names"),
    ("fault_reset", 0, 0, "", "TCP_MISS_ABORTED", "policy",
        "a fault of the rule ends the connection"),
    ("tls_refused", 0, 0, "", "TCP_DENIED", "policy",
        "a rule refuses TLS inside a tunnel"),
    ("filter_refused", 403, 2, "http_request_denied", "TCP_DENIED", "policy",
        "a filter refuses the request or its response"),
    ("filter_answered", 0, 0, "", "NONE", "",
        "a filter answered in the origin's place"),
    ("filter_failed", 502, 1, "proxy_internal_error", "TCP_DENIED", "proxy",
        "a filter raised an exception, or could not process the body"),
    ("filter_timeout", 504, 1, "proxy_internal_error", "TCP_DENIED", "proxy",
        "a filter exceeded its budget"),
    ("replayed", 0, 0, "", "NONE", "",
        "a recorded answer was played again"),
    ("recording_missed", 502, 2, "http_request_denied", "TCP_DENIED", "policy",
        "the rule replays, and no recording answers this request"),
    ("replay_failed", 502, 1, "proxy_internal_error", "TCP_DENIED", "proxy",
        "a recording matches, and cannot be sent, or its template or the hook on_replay has failed"),
    ("recording_full", 503, 1, "proxy_internal_response", "TCP_DENIED", "policy",
        "the rule refuses what cannot be recorded, and the writer of recordings is behind"),
    ("recording_too_large", 502, 1, "proxy_internal_response", "TCP_DENIED", "policy",
        "the rule refuses what cannot be recorded, and a body is longer than `recording_body`"),
    ("breakpoint_aborted", 403, 1, "http_request_denied", "TCP_DENIED", "policy",
        "an operator aborted it at a breakpoint"),
    ("breakpoint_undecided", 403, 1, "http_request_denied", "TCP_DENIED", "policy",
        "no operator decided in time about what a breakpoint held"),

    ("client_limit", 429, 2, "http_request_denied", "TCP_DENIED", "policy",
        "too many connections from one address"),
    ("user_limit", 429, 2, "http_request_denied", "TCP_DENIED", "policy",
        "too many connections or tunnels of one user"),
    ("rate_limited", 429, 2, "http_request_denied", "TCP_DENIED", "policy",
        "too many requests of one user in a short time"),
    ("quota_exceeded", 429, 2, "http_request_denied", "TCP_DENIED", "policy",
        "the user's bytes for today are used up"),
    ("question_limit", 429, 2, "http_request_denied", "TCP_DENIED", "policy",
        "too many pending queries of one user, to name servers or to the policy's hook"),
    ("content_limit", 503, 1, "proxy_internal_response", "TCP_DENIED", "policy",
        "too many bytes of bodies are collected at once, or too much work on them waits"),

    ("dns_error", 502, 4, "dns_error", "TCP_MISS", "network",
        "the resolver failed or answered with an error"),
    ("dns_not_found", 502, 4, "dns_error", "TCP_MISS", "network",
        "the name has no address"),
    ("dns_timeout", 504, 4, "dns_timeout", "TCP_MISS", "network",
        "the resolver did not answer in time"),
    ("dns_unvalidated", 502, 4, "dns_error", "TCP_MISS", "network",
        "no resolver says that it has validated the answer, and it must (DNSSEC)"),
    ("connection_refused", 502, 5, "connection_refused", "TCP_MISS", "network",
        "the origin refused the connection"),
    ("connection_reset", 502, 1, "connection_terminated", "TCP_MISS", "network",
        "the connection was reset before it was established"),
    ("connection_failed", 502, 1, "destination_unavailable", "TCP_MISS", "network",
        "the connection could not be established, for another reason"),
    ("unreachable", 502, 3, "destination_ip_unroutable", "TCP_MISS", "network",
        "no route to the origin's address"),
    ("connect_timeout", 504, 6, "connection_timeout", "TCP_MISS", "network",
        "the connection was not established in time"),
    ("origin_tls", 502, 1, "tls_protocol_error", "TCP_MISS", "origin",
        "the TLS handshake with the origin of an intercepted connection, or a named one, failed"),
    ("origin_certificate", 502, 1, "tls_certificate_error", "TCP_MISS", "origin",
        "the certificate of an intercepted connection's origin, or of a named one, is not accepted"),
    ("origin_wants_certificate", 502, 1, "tls_alert_received", "TCP_MISS", "origin",
        "an intercepted connection's origin wants a client certificate, and the rule names none"),
    ("origin_refuses_certificate", 502, 1, "tls_alert_received", "TCP_MISS", "origin",
        "an intercepted connection's origin does not accept the rule's client certificate"),

    ("source_mismatch", 502, 3, "destination_ip_unroutable", "TCP_MISS", "network",
        "the destination has no address of a family that the configured source has"),
    ("source_unavailable", 500, 1, "proxy_configuration_error", "TCP_MISS", "proxy",
        "the configured source cannot be used on this host: its address, device or mark"),
    ("parent_unreachable", 503, 1, "destination_unavailable", "TCP_MISS", "network",
        "no parent could be connected to, or each of them has failed lately"),
    ("parent_timeout", 504, 6, "http_response_timeout", "TCP_MISS", "network",
        "the parent did not accept the connection, or did not answer, in time"),
    ("parent_closed", 502, 1, "connection_terminated", "TCP_MISS", "network",
        "the parent ended the connection before its answer was complete"),
    ("parent_refused", 502, 1, "destination_unavailable", "TCP_MISS", "network",
        "the parent refused to connect to the destination"),
    ("parent_auth", 502, 1, "proxy_configuration_error", "TCP_MISS", "network",
        "the parent does not accept our credentials, or requires some"),
    ("parent_handshake", 502, 1, "tls_protocol_error", "TCP_MISS", "network",
        "the TLS handshake with the parent failed, or the parent ended it"),
    ("parent_certificate", 502, 1, "tls_certificate_error", "TCP_MISS", "network",
        "the parent's certificate is not accepted"),
    ("bad_parent", 502, 1, "http_protocol_error", "TCP_MISS", "network",
        "the parent's answer breaks its protocol"),
    ("origin_unreachable", 503, 1, "destination_unavailable", "TCP_MISS", "origin",
        "no server of the named origin could be connected to, or each of them has failed lately"),

    ("origin_closed", 502, 1, "connection_terminated", "TCP_MISS", "origin",
        "the origin closed before its response head was complete"),
    ("origin_reset", 502, 1, "connection_terminated", "TCP_MISS_ABORTED", "origin",
        "the origin reset the connection"),
    ("bad_response", 502, 1, "http_protocol_error", "TCP_MISS", "origin",
        "the response breaks RFC 9112 or, by HTTP/2, RFC 9113"),
    ("bad_response_framing", 502, 1, "http_protocol_error", "TCP_MISS_ABORTED", "origin",
        "the length of the response is ambiguous or invalid"),
    ("response_head_too_large", 502, 1, "http_response_header_section_size", "TCP_MISS",
        "origin", "the response head is longer than the limit"),
    ("upgrade_failed", 502, 1, "http_upgrade_failed", "TCP_MISS", "origin",
        "a 101 that was not requested, or for another protocol"),
    ("response_timeout", 504, 1, "http_response_timeout", "TCP_MISS", "origin",
        "the origin did not begin its response, or read the request body, in time"),
    ("response_truncated", 502, 1, "http_response_incomplete", "TCP_MISS_ABORTED",
        "origin", "the origin closed in the middle of a response"),

    ("client_closed", 0, 0, "", "TCP_MISS_ABORTED", "client",
        "the client closed before its request or response was complete"),
    ("client_reset", 0, 0, "", "TCP_MISS_ABORTED", "client",
        "the client reset the connection"),
    ("idle_timeout", 504, 1, "connection_read_timeout", "TCP_MISS_TIMEDOUT", "network",
        "nothing moved in either direction for too long"),
    ("write_timeout", 0, 0, "connection_write_timeout", "TCP_MISS_TIMEDOUT", "client",
        "a peer did not read what was sent to it, or read too slowly"),
    ("half_closed_timeout", 0, 0, "connection_read_timeout", "TCP_MISS_TIMEDOUT",
        "network", "one side had finished, the other stayed silent"),
    ("lifetime", 504, 1, "connection_timeout", "TCP_MISS_TIMEDOUT", "policy",
        "the request or tunnel reached its maximum age"),
    ("keepalive_timeout", 0, 0, "", "NONE", "",
        "an idle connection between two requests was closed"),

    ("auth_timeout", 503, 1, "proxy_internal_response", "NONE", "proxy",
        "the credentials could not be verified in time"),
    ("overloaded", 503, 1, "connection_limit_reached", "NONE", "proxy",
        "no connection, descriptor, buffer or place in a queue was available"),
    ("drained", 503, 1, "proxy_internal_response", "TCP_MISS_ABORTED", "proxy",
        "the drain deadline came before the request or tunnel ended"),
    ("stopped", 0, 0, "", "TCP_MISS_ABORTED", "proxy",
        "the proxy stopped without waiting"),
    ("cut", 503, 1, "proxy_internal_response", "TCP_MISS_ABORTED", "proxy",
        "an operator closed the connection"),
    ("internal_error", 500, 1, "proxy_internal_error", "NONE", "proxy",
        "an internal fault of the proxy, which ended only this connection"),
)

# Made from plain tuples: gcc 14 takes two minutes to compile this many calls at module level.
TABLE = tuple([Row._make(row) for row in ROWS])

assert len(TABLE) == <int>N_OUTCOMES, "outcome.pxd and outcome.pyx disagree"

NAMES = {row.label: number for number, row in enumerate(TABLE)}

# The C columns point into these bytes objects, which live as long as the module.
_bytes = [(row.label.encode(), row.token.encode(), row.tag.encode()) for row in TABLE]

cdef int statuses[N_OUTCOMES]
cdef int socks_codes[N_OUTCOMES]
cdef const char *labels[N_OUTCOMES]
cdef const char *tokens[N_OUTCOMES]
cdef const char *tags[N_OUTCOMES]

cdef int number
for number in range(<int>N_OUTCOMES):
    statuses[number] = TABLE[number].status
    socks_codes[number] = TABLE[number].socks
    labels[number] = _bytes[number][0]
    tokens[number] = _bytes[number][1]
    tags[number] = _bytes[number][2]


cdef int status_of(int outcome) noexcept nogil:
    return statuses[outcome]


cdef int socks_code_of(int outcome) noexcept nogil:
    return socks_codes[outcome]


cdef const char *label_of(int outcome) noexcept nogil:
    return labels[outcome]


cdef const char *token_of(int outcome) noexcept nogil:
    return tokens[outcome]


cdef const char *tag_of(int outcome) noexcept nogil:
    return tags[outcome]
