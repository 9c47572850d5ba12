-- Write a record under a fence.
--
-- KEYS   1 record, as in read_record.lua
-- ARGV   1 value   2 fence   3 ttl (ms)
-- Reply  1 written, 0 a higher fence was here
-- Invariant: a write under a lower fence than any seen here changes nothing.
-- include clock.lua
local highest, fence = tonumber(redis.call('HGET', KEYS[1], 'f') or '0'), tonumber(ARGV[2])
if fence < highest then return 0 end
local ends = now + tonumber(ARGV[3])
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'e', text(ends), 'f', text(fence))
redis.call('PEXPIREAT', KEYS[1], text(math.max(ends, math.floor(fence / 1000)) + 86400000))
return 1
