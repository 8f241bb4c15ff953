"""The payload of END, as a worker writes it and the writer reads it."""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

# The texts behind an EndRecord, in this order.
cdef enum:
    T_USER = 0
    T_HOST
    T_RULE
    T_PARENT
    T_CLIENT
    T_PEER
    T_SNI
    T_ALPN
    T_JA4
    T_CLIENT_CIPHER
    T_PEER_CIPHER
    T_HEAD                      # the request's; empty: not known
    T_CLIENT_JA4                # of the client's own connection, in the order of its columns
    T_CLIENT_JA3
    T_CLIENT_JA4_R
    T_CLIENT_JA4_O
    T_CLIENT_JA4_RO
    T_HTTP2
    T_DETAIL                    # more than the outcome says: the log's `hook`
    T_ADDED                     # secrets of filters that the answer may repeat, by lines
    T_TRACE                     # the traceparent that the head got, if it had no valid one
    N_TEXTS

cdef enum Flag:
    IS_TUNNEL = 1
    IS_REUSED = 2               # over a pooled connection
    IS_REPORTED = 4
    HAS_UPGRADE = 8
    UP_CHUNKED = 16             # pieces of the body have the framing of chunks
    DOWN_CHUNKED = 32
    UP_CUT = 64                 # pieces found no room in the ring
    DOWN_CUT = 128
    WAS_RETRIED = 256
    OFFERS_ECH = 512
    IS_WEBSOCKET = 1024         # of which frames were tapped
    IS_INTERCEPTED = 2048       # inside an intercepted connection, or its CONNECT
    IS_PINNED = 4096            # passed instead, because clients have rejected our certificate
    IS_RECORDED = 8192          # its answer may be played again
    NOT_CAPTURED = 16384        # recorded, and nothing else

cdef struct EndRecord:
    int64_t end_us              # Unix time
    int64_t total_us
    int64_t first_byte_us       # from the connection to the response's first byte; 0: none
    int64_t receive_us          # from then to the end
    uint64_t bytes_up
    uint64_t bytes_down
    uint64_t body_up            # bytes of the body, its framing included; UINT64_MAX: not counted
    uint64_t body_down
    uint32_t head_us            # of Stamps; 0: not begun
    uint32_t auth_us
    uint32_t hook_us
    uint32_t dns_us
    uint32_t connect_us
    uint32_t send_us
    uint32_t origin_tls_us
    uint32_t client_tls_us
    uint32_t held_us            # by filters and breakpoints, after the request's head
    uint32_t lengths[N_TEXTS]
    uint16_t status
    uint16_t port
    uint16_t client_port
    uint16_t peer_port
    uint16_t tls_version        # the highest that the ClientHello of a tunnel offers
    uint16_t client_tls         # the version between client and proxy; 0: no TLS
    uint16_t peer_tls           # between proxy and parent
    uint16_t flags
    uint8_t outcome
    uint8_t method              # wire's Method
    uint8_t host_kind
    uint8_t protocol            # of a tunnel; 0: not looked at
    uint8_t client_http         # HTTP's version times ten, as the client speaks it; 0: it does not
    uint8_t origin_http         # 20: HTTP/2 to the origin; 0: as its head says


cdef inline void point(EndRecord *end, const char **texts, int which, bytes value) noexcept:
    """Points to `value`, if there is one: the text lives as long as `value`."""
    if value is not None:
        texts[which] = value
        end.lengths[which] = <uint32_t>len(value)
