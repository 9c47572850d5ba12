-- Make every later fence of this name higher than a number.
--
-- KEYS   1-6 as in queue.lua
-- ARGV   1 fence
-- Reply  what later fences are higher than now
-- Invariant: never lowers it, and does not touch a grant.
-- include clock.lua
local highest = math.max(tonumber(redis.call('HGET', KEYS[2], 'f') or '0'), tonumber(ARGV[1]))
redis.call('HSET', KEYS[2], 'f', text(highest))
local until_ms = math.max(math.floor(highest / 1000), now) + 86400000
if redis.call('PTTL', KEYS[2]) < until_ms - now then redis.call('PEXPIREAT', KEYS[2], text(until_ms)) end
return highest
