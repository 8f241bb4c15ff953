-- A column for each field of docs/accesslog.schema.json, and `instance`, which the collector adds.
-- What is absent from a line is the column's default; NULL is a null of the line.
CREATE TABLE IF NOT EXISTS access_log
(
    time DateTime64(3, 'UTC') CODEC(Delta, ZSTD),
    instance LowCardinality(String),
    worker UInt16,
    id String,

    client String,
    user LowCardinality(Nullable(String)),
    tried_user String,
    kind LowCardinality(String),
    method LowCardinality(String),
    host Nullable(String),
    port UInt16,
    url String CODEC(ZSTD),
    status UInt16,
    reason LowCardinality(String),
    peer Nullable(String),
    bytes_up UInt64,
    bytes_down UInt64,
    path LowCardinality(String),

    -- How long each phase took; NULL: it did not begin.
    head_ms Nullable(Float64),
    auth_ms Nullable(Float64),
    hook_ms Nullable(Float64),
    dns_ms Nullable(Float64),
    connect_ms Nullable(Float64),
    origin_tls_ms Nullable(Float64),
    first_byte_ms Nullable(Float64),
    held_ms Nullable(Float64),
    client_tls_ms Nullable(Float64),
    total_ms Float64,

    -- The decision
    rule LowCardinality(Nullable(String)),
    report Bool,
    hook String,
    changed LowCardinality(String),
    breakpoint Bool,
    intercepted Bool,
    pinned Bool,
    upgrade Bool,

    -- The way
    proxied_by LowCardinality(String),
    proxy_tlvs Map(String, String),
    source LowCardinality(String),
    source_address LowCardinality(String),
    origin LowCardinality(String),
    parent LowCardinality(String),
    parent_status Nullable(UInt16),
    client_http LowCardinality(String),
    origin_http LowCardinality(String),
    peer_tls_version LowCardinality(String),
    peer_cipher LowCardinality(String),
    client_rtt_ms Nullable(Float64),
    client_retransmits Nullable(UInt32),
    origin_rtt_ms Nullable(Float64),
    origin_retransmits Nullable(UInt32),

    -- The client's TLS to the proxy, and its fingerprints
    client_tls_version LowCardinality(String),
    client_cipher LowCardinality(String),
    client_sni String,
    client_alpn LowCardinality(String),
    client_resumed Bool,
    client_certificate String,
    client_ja4 LowCardinality(String),
    client_ja3 LowCardinality(String),
    http2_fingerprint LowCardinality(String),
    tcp_fingerprint LowCardinality(String),

    -- What a tunnel's first bytes said
    tunnel_protocol LowCardinality(String),
    sni String,
    alpn LowCardinality(String),
    tls_version LowCardinality(String),
    ech Bool,
    ja4 LowCardinality(String),
    ja3 String
)
ENGINE = MergeTree
PARTITION BY toDate(time)
ORDER BY (reason, time)
TTL toDateTime(time) + INTERVAL 90 DAY
SETTINGS ttl_only_drop_parts = 1;
