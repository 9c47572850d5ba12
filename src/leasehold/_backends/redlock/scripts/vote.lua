-- Get the vote of a node: lock it for this owner and remember the proposed number, in one step, or refuse.
--
-- KEYS   1 the marker   2 the lock {o owner, f number, e ends (ms), s since (us), d description, b why it was broken,
--                                   c the highest number ever accepted, u whether an operator raised it, w and v owner
--                                   and why of the last one that was broken and is gone}
--        3 the mark of an owner that withdrew its claim
-- ARGV   1 owner   2 number   3 ttl (ms)   4 description   5 settings, as in marker.lua
-- Reply  {1, now, number}              the vote; the number is an earlier one if this owner has the lock already
--        {0, now, highest, left, description} another claim has it
--        {2, now, highest}             a number as high was accepted before
--        {3, now, highest}             the number is outside the window of this node's clock
--        {4, now, left}                it sits out
--        {5, now}                      this claim was withdrawn
--        {6, now, settings}               its marker has other settings
-- Invariant: numbers accepted for a key rise strictly, and lie within the window of the node's clock (where an operator
-- raised them, also of the highest). The key outlives its highest number by a day, so it is forgotten only when no
-- number up to it would be accepted any more.
-- include clock.lua
-- include marker.lua
local owner, number, ttl = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3])
local out, theirs = sits_out(KEYS[1], ARGV[5], true)
if theirs then return {6, now_us, theirs} end
if out > 0 then return {4, now_us, out} end
if redis.call('EXISTS', KEYS[3]) == 1 then return {5, now_us} end
local lock = redis.call('HMGET', KEYS[2], 'o', 'f', 'e', 'c', 'b', 'd', 'u')
local highest = tonumber(lock[4] or '0')
local ends = now + ttl
if lock[1] and tonumber(lock[3]) > now then
  if lock[1] ~= owner or lock[5] then
    return {0, now_us, highest, tonumber(lock[3]) - now, lock[6]}
  end
  redis.call('HSET', KEYS[2], 'e', text(ends))
  number = tonumber(lock[2])
else
  if highest >= number then return {2, now_us, highest} end
  local latest = lock[7] and math.max(now_us, highest) or now_us
  if number < now_us - WINDOW_US or number > latest + WINDOW_US then
    return {3, now_us, highest}
  end
  if lock[5] then redis.call('HDEL', KEYS[2], 'b') end
  highest = number
  redis.call('HSET', KEYS[2], 'o', owner, 'f', ARGV[2], 'e', text(ends), 's', text(now_us), 'd', ARGV[4], 'c', ARGV[2])
end
redis.call('PEXPIREAT', KEYS[2], text(math.max(math.floor(highest / 1000), ends) + 86400000))
return {1, now_us, number}
