-- Undo a claim whatever became of it, and refuse a request of it that arrives later.
--
-- KEYS   1 the lock, as in vote.lua   2 the mark of this owner
-- ARGV   1 owner   2 ttl (ms)
-- Reply  1
-- Invariant: afterwards nothing of this claim is on the node, and nothing can be for one ttl.
-- include clock.lua
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
local lock = redis.call('HMGET', KEYS[1], 'o', 'f', 'c')
if lock[1] == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'o', 'b')
  redis.call('HSET', KEYS[1], 'c', text(math.max(tonumber(lock[3]), tonumber(lock[2]) + 1)))
end
return 1
