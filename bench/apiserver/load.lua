-- One kind of request, over and over: METHOD PATH TOKEN CONTENT-TYPE BODY-FILE FIRST CYCLE LIMIT.
-- In path and body @N@ stands for a number that goes round within CYCLE (0: never comes back) and @K@ for one that
-- never repeats. With a LIMIT other than 0 wrk ends when so many are answered. Failed answers are counted.
local method, path, body, headers, first, cycle, limit
local sent, received, failed = 0, 0, 0
local probed = false

function init(args)
   method, path = args[1], args[2]
   headers = { ["Authorization"] = "Bearer " .. args[3], ["Accept"] = "application/json" }
   if args[5] ~= "" then
      headers["Content-Type"] = args[4]
      local file = assert(io.open(args[5]))
      body = file:read("*a")
      file:close()
   end
   first, cycle, limit = tonumber(args[6]), tonumber(args[7]), tonumber(args[8])
end

local function filled(text, n, k)
   return (text:gsub("@N@", n):gsub("@K@", k))
end

-- Asked where there is nothing to ask: by wrk itself, which looks at one request before it begins, and behind the limit.
local function idle_request()
   return wrk.format("GET", "/livez", headers)
end

function request()
   if not probed or (limit > 0 and sent >= limit) then
      probed = true
      return idle_request()
   end
   local k = string.format("%d", first + sent)
   local n = cycle > 0 and string.format("%d", sent % cycle) or k
   sent = sent + 1
   return wrk.format(method, filled(path, n, k), headers, body and filled(body, n, k))
end

function response(status, _, answer)
   if answer == "ok" then return end
   received = received + 1
   if status >= 400 then
      failed = failed + 1
      if failed == 1 then io.stderr:write(answer:sub(1, 500), "\n") end
   end
   if limit > 0 and received >= limit then
      io.write(string.format('{"requests":%d,"seconds":0,"failed":%d,"p99":0}\n', received, failed))
      os.exit(0)
   end
end

function done(summary, latency)
   local errors = summary.errors
   local lost = errors.status + errors.connect + errors.read + errors.write + errors.timeout
   io.write(string.format('{"requests":%d,"seconds":%f,"failed":%d,"p99":%f}\n', summary.requests,
      summary.duration / 1e6, lost, latency:percentile(99) / 1000))
end
