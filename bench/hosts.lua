-- Requests in origin form for N hosts in turn, each a name below bench.example.
--
--   wrk -t1 -c50 -d5s -s hosts.lua http://127.0.0.1:8888 -- N

dofile((debug.getinfo(1, "S").source:match("^@(.*/)") or "") .. "wrk_summary.lua")

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
