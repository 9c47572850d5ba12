-- For how many milliseconds this node still sits out, because it may have forgotten votes and numbers.
--
-- The marker lies among the data: which process has known them, and since when: {r run id, s since (ms), x settings}.
-- The settings are what all clients must agree on, `max_ttl (ms)/number of nodes`: with other settings a node would sit
-- out for too short, and two majorities would not share a node.
-- It is missing after FLUSHALL or a restart that comes up empty, and names another process after a restart from a
-- snapshot or a failover. Uptime would see neither FLUSHALL nor, behind a proxy, the restart.
--
-- Only a vote or a renewal may write it: a call that just reads must not decide on the settings.
--
-- Returns the milliseconds, the settings of the marker if they are not the caller's, and the run id.
-- Invariant: a node votes and confirms only when it has known everything for max_ttl + 2 windows.
local function sits_out(marker, settings, may_write)
  local run_id = string.match(redis.call('INFO', 'server'), 'run_id:(%w+)')
  local known = redis.call('HMGET', marker, 'r', 's', 'x')
  local whole = tonumber(string.match(settings, '^%d+')) + 2 * WINDOW_US / 1000
  if known[1] ~= run_id or not known[2] then
    if may_write then
      redis.call('DEL', marker)
      redis.call('HSET', marker, 'r', run_id, 's', text(now), 'x', settings)
    end
    return whole, nil, run_id
  end
  local since = tonumber(known[2])
  if since > now then -- the clock was set back
    if may_write then redis.call('HSET', marker, 's', text(now)) end
    since = now
  end
  return math.max(0, since + whole - now), known[3] ~= settings and known[3] or nil, run_id
end
