-- Free a node, or clean up after an attempt that failed: whatever there is of this owner and this number.
--
-- KEYS   1 the lock, as in vote.lua
-- ARGV   1 owner   2 number
-- Reply  1 freed, 0 it was not there, {2, why} it had been broken: what was kept for its ttl is free now
-- Invariant: only the grant with this owner and this number is touched; and no vote or repair for it that arrives later
-- is accepted, because the highest number is above it from now on. A release that is repeated gets the break again.
-- include clock.lua
local lock = redis.call('HMGET', KEYS[1], 'o', 'f', 'e', 'b', 'c', 'w', 'v')
local reply = 0
if lock[1] == ARGV[1] and lock[2] == ARGV[2] then
  if tonumber(lock[3]) > now then reply = 1 end
  redis.call('HDEL', KEYS[1], 'o', 'b')
  if reply == 1 and lock[4] then
    reply = {2, lock[4]}
    redis.call('HSET', KEYS[1], 'w', ARGV[1], 'v', lock[4])
  end
elseif lock[6] == ARGV[1] then
  reply = {2, lock[7]}
end
local above = tonumber(ARGV[2]) + 1
if tonumber(lock[5] or '0') < above then
  redis.call('HSET', KEYS[1], 'c', text(above))
  redis.call('PEXPIREAT', KEYS[1], text(math.max(math.floor(above / 1000), now) + 86400000))
end
return reply
