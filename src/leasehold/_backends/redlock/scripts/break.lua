-- End a grant by an operator's order. Its place stays taken until its ttl is over, unless `now`.
--
-- KEYS   1 the lock, as in vote.lua
-- ARGV   1 number   2 why   3 '1' at once
-- Reply  1 broken, 0 this grant is not held here
-- Invariant: only the grant with this number is touched.
-- include clock.lua
local lock = redis.call('HMGET', KEYS[1], 'o', 'f', 'e', 'c')
if not lock[1] or lock[2] ~= ARGV[1] or tonumber(lock[3]) <= now then return 0 end
if ARGV[3] == '1' then
  local above = math.max(tonumber(lock[4]), tonumber(ARGV[1]) + 1)
  redis.call('HSET', KEYS[1], 'w', lock[1], 'v', ARGV[2], 'c', text(above))
  redis.call('HDEL', KEYS[1], 'o', 'b')
else
  redis.call('HSET', KEYS[1], 'b', ARGV[2])
end
return 1
