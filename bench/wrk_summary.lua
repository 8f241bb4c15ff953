-- The last line of a run of wrk, for scripts that load this file: `requests=… errors=…`.

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    "requests=%d errors=%d seconds=%.3f p50_us=%.1f p95_us=%.1f p99_us=%.1f p999_us=%.1f max_us=%.1f\n",
    summary.requests, e.connect + e.read + e.write + e.timeout + e.status,
    summary.duration / 1e6, latency:percentile(50), latency:percentile(95),
    latency:percentile(99), latency:percentile(99.9), latency.max))
end
