-- Put a lock back on a node that lost it. Sent only by a holder that a majority has just confirmed.
--
-- KEYS   1 the lock, as in vote.lua   2 the mark of an owner that withdrew its claim
-- ARGV   1 owner   2 number   3 ttl (ms)   4 description
-- Reply  1 repaired, 0 not
-- Invariant: the node is free and knows no higher number. A release raises the highest number above its own, so a
-- repair that arrives after the release is refused. The window does not matter: no new number is accepted here.
-- include clock.lua
local number, ttl = tonumber(ARGV[2]), tonumber(ARGV[3])
local lock = redis.call('HMGET', KEYS[1], 'o', 'e', 'c', 'w', 'b')
if (lock[1] and tonumber(lock[2]) > now) or lock[4] == ARGV[1] then return 0 end
if tonumber(lock[3] or '0') > number or redis.call('EXISTS', KEYS[2]) == 1 then return 0 end
if lock[5] then redis.call('HDEL', KEYS[1], 'b') end
local ends = now + ttl
redis.call('HSET', KEYS[1], 'o', ARGV[1], 'f', ARGV[2], 'e', text(ends), 's', text(now_us), 'd', ARGV[4], 'c', ARGV[2])
redis.call('PEXPIREAT', KEYS[1], text(math.max(math.floor(number / 1000), ends) + 86400000))
return 1
