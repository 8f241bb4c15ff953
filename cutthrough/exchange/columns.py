"""The columns of a stored exchange, in order; `storage.store` has their types."""

# Of the client's own connection, by the log's names: docs/fingerprints.md
FINGERPRINTS = ("client_ja4", "client_ja3", "client_ja4_r", "client_ja4_o",
                "client_ja4_ro", "http2_fingerprint")

# The column of a body in zstd, in place of its own: see packing.py
PACKED = {"request_body": "request_packed", "response_body": "response_packed",
          "messages": "messages_packed"}

COLUMNS: tuple[str, ...] = (
    "request", "begun_us", "ended_us", "kind", "method", "host", "port", "url",
    "status", "reason", "detail", "rule", "reported", "user", "client", "client_port",
    "peer", "peer_port", "parent", "reused", "retried", "bytes_up", "bytes_down",
    "head_us", "auth_us", "hook_us", "dns_us", "connect_us", "origin_tls_us", "send_us",
    "wait_us", "receive_us", "held_us", "total_us", "client_tls_us", "protocol", "sni",
    "alpn", "ja4", "tls_version", "ech", "intercepted", "pinned", "client_tls_version",
    "client_cipher", "peer_tls_version", "peer_cipher", *FINGERPRINTS, "client_http",
    "origin_http", "request_head_bytes", "response_head_bytes", "request_body_bytes",
    "response_body_bytes", "request_content_bytes", "response_content_bytes",
    "request_body_state", "response_body_state", "bytes", "request_head",
    "response_head", "request_body", "response_body", "messages", "messages_state",
    "request_trailers", "response_trailers", *PACKED.values())
# Columns that tables of earlier versions may lack; opening such a table adds them
ADDED = (*FINGERPRINTS, *PACKED.values())
