-- Every request with the credentials of the next of 50 users, in turn.
--
--   wrk -t1 -c100 -d5s -s users.lua http://127.0.0.1:8888 -- HOST:PORT/path BASE64,BASE64,…
--
-- The requests are built once; `request` only picks one.

local requests, turn = {}, 0

function init(args)
  wrk.path = "http://" .. args[1]
  wrk.headers["Host"] = args[1]:match("^[^/]+")
  for word in args[2]:gmatch("[^,]+") do
    wrk.headers["Proxy-Authorization"] = "Basic " .. word
    requests[#requests + 1] = wrk.format()
  end
end

function request()
  turn = turn % #requests + 1
  return requests[turn]
end

function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    "requests=%d errors=%d seconds=%.3f p50_us=%.1f p99_us=%.1f p999_us=%.1f max_us=%.1f\n",
    summary.requests, e.connect + e.read + e.write + e.timeout + e.status,
    summary.duration / 1e6, latency:percentile(50), latency:percentile(99),
    latency:percentile(99.9), latency.max))
end
