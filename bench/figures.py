"""The figures that the report shows of a scenario: title, unit, key of the summary.

A chart without any value is omitted.
"""

from __future__ import annotations

from bench.scenarios import SCENARIOS

Figure = tuple[str, str, str]

_USUAL = (
    ("Requests", "a second, more is better", "throughput_median_rps"),
    ("CPU of the proxy", "µs a request, less is better", "cpu_us_per_request_median"),
    ("Latency p99", "ms, less is better", "latency_p99_median_ms"),
)
_BULK = (
    ("Throughput", "MiB a second, more is better", "mib_median_per_s"),
    ("CPU of the proxy", "µs a MiB, less is better", "cpu_median_us_per_mib"),
    ("Latency p99", "ms for one body, less is better", "latency_p99_median_ms"),
)
_RATE = tuple(
    (f"Latency {name}", "ms, less is better", f"latency_{key}_median_ms")
    for name, key in (
        ("least", "min"), ("average", "avg"), ("p50", "p50"), ("p95", "p95"),
        ("p99", "p99"), ("p99.9", "p999"), ("most", "max"),
    )
)  # fmt: skip
_PAGE = (
    ("Pages", "a second, more is better", "pages_median_per_s"),
    ("A page on average", "ms, less is better", "page_avg_median_ms"),
    ("CPU of the proxy", "µs a request, less is better", "cpu_us_per_request_median"),
)
_IDLE = (
    (
        "Memory of a tunnel at rest",
        "bytes, less is better",
        "uss_bytes_per_tunnel_median",
    ),
    ("CPU at rest", "percent of a core", "cpu_at_rest_median_percent"),
)
_LIFE = (
    ("Start to first answer", "ms, less is better", "start_median_ms"),
    ("SIGTERM to end", "ms, less is better", "stop_median_ms"),
)
_SOAK = (
    ("Growth of memory", "KiB a minute", "rss_slope_kib_per_minute_median"),
    ("Growth of descriptors", "a minute", "fds_slope_per_minute_median"),
    ("Memory at most", "KiB", "rss_peak_median_kib"),
)
_CROWD = (
    ("With 100 open", "requests a second", "quiet_median_rps"),
    ("With 10 000 open", "a second, more is better", "throughput_median_rps"),
    ("One of the other", "more is better", "crowd_ratio_median"),
    (
        "Memory of a connection at rest", "bytes, less is better",
        "uss_bytes_per_connection_median",
    ),
)  # fmt: skip
_WORKERS = (
    ("Each with a fifth of a core", "requests a second", "throughput_median_rps"),
    ("As they are", "requests a second", "free_median_rps"),
    ("CPU of the proxy", "µs a request, less is better", "cpu_us_per_request_median"),
)
_HOSTILE = (
    ("p99 of the steady load, alone", "ms", "quiet_p99_median_ms"),
    ("p99 beside the hostile clients", "ms, less is better", "latency_p99_median_ms"),
    ("How many times", "over 2 and 5 ms it is a fault", "p99_factor_median"),
)


def figures_of(name: str) -> tuple[Figure, ...]:
    scenario = SCENARIOS[name]
    own = {
        "idle": _IDLE, "lifecycle": _LIFE, "soak": _SOAK, "hostile": _HOSTILE,
        "crowd": _CROWD, "workers": _WORKERS, "tail": (*_RATE, _USUAL[1]),
    }.get(scenario.tool)  # fmt: skip
    if own:
        return own
    if scenario.mode.startswith("rate"):
        return (*_RATE, _USUAL[1])
    if scenario.mode == "page":
        return _PAGE
    if name.startswith("plain-keepalive"):
        return (*_USUAL[:2], *_RATE)
    bulk = scenario.path in ("/1m", "/128k", "/up", "/both")
    return _BULK if bulk else _USUAL
