-- Every request with the credentials of the next of 50 users, in turn.
--
--   wrk -t1 -c100 -d5s -s users.lua http://127.0.0.1:8888 -- HOST:PORT/path BASE64,BASE64,…
--
-- The requests are built once; `request` only picks one.

dofile((debug.getinfo(1, "S").source:match("^@(.*/)") or "") .. "wrk_summary.lua")

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
