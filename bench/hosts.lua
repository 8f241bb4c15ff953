-- Requests in origin form for N hosts in turn, each a name below bench.example.
--
--   wrk -t1 -c50 -d5s -s hosts.lua http://127.0.0.1:8888 -- N

local requests, turn = {}, 0

function init(args)
  for i = 1, tonumber(args[1]) do
    wrk.headers["Host"] = "h" .. i .. ".bench.example"
    requests[i] = wrk.format("GET", "/index.html")
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    "requests=%d errors=%d seconds=%.3f p50_us=%.1f p95_us=%.1f p99_us=%.1f max_us=%.1f\n",
    summary.requests, e.connect + e.read + e.write + e.timeout + e.status,
    summary.duration / 1e6, latency:percentile(50), latency:percentile(95),
    latency:percentile(99), latency.max))
end
