-- wrk knows nothing of proxies. This script sends every request in absolute form,
-- with credentials, and ends with one key=value line:
--
--   wrk -t1 -c100 -d3s -s absolute.lua http://127.0.0.1:8888 -- HOST:PORT/path BASE64
--
-- Without arguments the URL is requested as it is (the direct and blind baselines).
-- `request` is not defined, so wrk builds the request once and runs no Lua per request.

function init(args)
  if args[1] then
    wrk.path = "http://" .. args[1]
    wrk.headers["Host"] = args[1]:match("^[^/]+")
  end
  if args[2] then
    wrk.headers["Proxy-Authorization"] = "Basic " .. args[2]
  end
end

function done(summary, latency)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.timeout + e.status
  io.write(string.format(
    "tool=wrk requests=%d errors=%d first_error=%s seconds=%.3f bytes=%d"
      .. " latency_min_us=%.1f latency_avg_us=%.1f latency_p50_us=%.1f latency_p95_us=%.1f"
      .. " latency_p99_us=%.1f latency_p999_us=%.1f latency_max_us=%.1f\n",
    summary.requests, failed,
    failed == 0 and "none" or string.format(
      "connect:%d,read:%d,write:%d,timeout:%d,status:%d",
      e.connect, e.read, e.write, e.timeout, e.status),
    summary.duration / 1e6, summary.bytes, latency.min, latency.mean,
    latency:percentile(50), latency:percentile(95), latency:percentile(99),
    latency:percentile(99.9), latency.max))
end
