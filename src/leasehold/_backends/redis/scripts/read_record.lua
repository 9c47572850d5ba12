-- Read a record; with a fence, refuse every lower one at this key from now on.
--
-- KEYS   1 record: hash of v value, e expiry (ms), f highest fence seen
-- ARGV   1 fence, or 0
-- Reply  {value or nil, ttl left (ms), fence, now (us)}
-- Invariant: the fence of a record never goes back, and outlives the record and its own time by a day.
-- include clock.lua
local record = redis.call('HMGET', KEYS[1], 'v', 'e', 'f')
local ends, highest = tonumber(record[2] or '0'), tonumber(record[3] or '0')
local fence = tonumber(ARGV[1])
if fence > highest then
  highest = fence
  redis.call('HSET', KEYS[1], 'f', text(fence))
  redis.call('PEXPIREAT', KEYS[1], text(math.max(now, ends, math.floor(fence / 1000)) + 86400000))
end
if ends <= now then return {false, 0, highest, now_us} end
return {record[1], ends - now, highest, now_us}
