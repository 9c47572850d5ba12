-- Let every later grant have a number above this one.
--
-- KEYS   1 the lock, as in vote.lua
-- ARGV   1 number
-- Reply  what they are above now
-- include clock.lua
local highest = math.max(tonumber(ARGV[1]), tonumber(redis.call('HGET', KEYS[1], 'c') or '0'))
redis.call('HSET', KEYS[1], 'c', text(highest), 'u', '1')
local ends = tonumber(redis.call('HGET', KEYS[1], 'e') or '0')
redis.call('PEXPIREAT', KEYS[1], text(math.max(math.floor(highest / 1000), ends, now) + 86400000))
return highest
