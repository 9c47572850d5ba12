-- Undo a claim whatever became of it; if one of its requests may still arrive, leave a mark that refuses it.
--
-- KEYS   1 the lock, as in vote.lua   2 the mark of this owner
-- ARGV   1 owner   2 how long the mark stays (ms); 0: every request was answered, and nothing is left
-- Reply  1
-- Invariant: afterwards nothing of this claim is on the node, and with a mark nothing can be for so long.
-- include clock.lua
if ARGV[2] ~= '0' then redis.call('SET', KEYS[2], '1', 'PX', ARGV[2]) end
local lock = redis.call('HMGET', KEYS[1], 'o', 'f', 'c')
if lock[1] == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'o', 'b')
  redis.call('HSET', KEYS[1], 'c', text(math.max(tonumber(lock[3]), tonumber(lock[2]) + 1)))
end
return 1
