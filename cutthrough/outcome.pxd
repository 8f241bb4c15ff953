"""Every way a request, a tunnel or a connection can end: one row each, numbered here."""

cdef enum Outcome:
    OK = 0
    # the client's request is invalid
    BAD_REQUEST
    BAD_TARGET
    BAD_FRAMING
    BAD_PROXY_HEADER
    BAD_SOCKS
    UNSUPPORTED_COMMAND
    BAD_CREDENTIALS_FIELD
    NO_ORIGIN
    UNSUPPORTED_CODING
    UNSUPPORTED_PROTOCOL
    UNSUPPORTED_VERSION
    HEAD_TOO_LARGE
    URI_TOO_LONG
    BODY_TOO_LARGE
    HEAD_TIMEOUT
    BODY_TIMEOUT
    FINAL_RECIPIENT
    TRACE_REFUSED
    MISDIRECTED
    TLS_FAILED
    TLS_UNSHARED
    TLS_NAME
    TLS_ALERT
    CERTIFICATE_REJECTED
    NO_CERTIFICATE
    TLS_CERTIFICATE
    TLS_TIMEOUT
    BAD_STREAM
    BAD_HTTP2
    HTTP2_RESETS
    HTTP2_FLOOD
    HTTP2_HEADERS
    # the policy forbids it
    AUTH_REQUIRED
    AUTH_FAILED
    AUTH_EXPIRED
    AUTH_THROTTLED
    DESTINATION_DENIED
    PATH_DENIED
    ADDRESS_DENIED
    PORT_DENIED
    POLICY_UNAVAILABLE
    LOOP_DETECTED
    SENDER_DENIED
    PROTOCOL_DENIED
    SNI_DENIED
    JA4_DENIED
    PEEK_TIMEOUT
    FAULT_STATUS
    FAULT_RESET
    TLS_REFUSED
    FILTER_REFUSED
    FILTER_ANSWERED
    FILTER_FAILED
    FILTER_TIMEOUT
    REPLAYED
    RECORDING_MISSED
    REPLAY_FAILED
    RECORDING_FULL
    RECORDING_TOO_LARGE
    BREAKPOINT_ABORTED
    BREAKPOINT_UNDECIDED
    # a limit of the policy is reached
    CLIENT_LIMIT
    USER_LIMIT
    RATE_LIMITED
    QUOTA_EXCEEDED
    QUESTION_LIMIT
    CONTENT_LIMIT
    # the origin cannot be reached
    DNS_ERROR
    DNS_NOT_FOUND
    DNS_TIMEOUT
    DNS_UNVALIDATED
    CONNECTION_REFUSED
    CONNECTION_RESET
    CONNECTION_FAILED
    UNREACHABLE
    CONNECT_TIMEOUT
    ORIGIN_TLS
    ORIGIN_CERTIFICATE
    ORIGIN_WANTS_CERTIFICATE
    ORIGIN_REFUSES_CERTIFICATE
    # it cannot be reached from the source that is configured for it
    SOURCE_MISMATCH
    SOURCE_UNAVAILABLE
    # a parent cannot be used
    PARENT_UNREACHABLE
    PARENT_TIMEOUT
    PARENT_CLOSED
    PARENT_REFUSED
    PARENT_AUTH
    PARENT_HANDSHAKE
    PARENT_CERTIFICATE
    BAD_PARENT
    # a named origin cannot be used
    ORIGIN_UNREACHABLE
    # the origin's response is invalid or missing
    ORIGIN_CLOSED
    ORIGIN_RESET
    BAD_RESPONSE
    BAD_RESPONSE_FRAMING
    RESPONSE_HEAD_TOO_LARGE
    UPGRADE_FAILED
    RESPONSE_TIMEOUT
    RESPONSE_TRUNCATED
    # a relay or an idle connection ends early
    CLIENT_CLOSED
    CLIENT_RESET
    IDLE_TIMEOUT
    WRITE_TIMEOUT
    HALF_CLOSED_TIMEOUT
    LIFETIME
    KEEPALIVE_TIMEOUT
    # the proxy itself ends it
    AUTH_TIMEOUT
    OVERLOADED
    DRAINED
    STOPPED
    CUT
    INTERNAL_ERROR
    N_OUTCOMES

# Columns of the table in outcome.pyx, for code that runs without Python.
cdef int status_of(int outcome) noexcept nogil            # HTTP status, 0: no reply is made
cdef int socks_code_of(int outcome) noexcept nogil        # SOCKS5 reply, 0: none is made
cdef const char *label_of(int outcome) noexcept nogil     # the word in logs, metrics and admin
cdef const char *token_of(int outcome) noexcept nogil     # RFC 9209 error token, "": none fits
cdef const char *tag_of(int outcome) noexcept nogil       # squid result tag
