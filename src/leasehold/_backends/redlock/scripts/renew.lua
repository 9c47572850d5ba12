-- Extend grants on a node.
--
-- KEYS   1 the marker   2.. a lock each, as in vote.lua
-- ARGV   1 settings, as in marker.lua, then for each lock: owner, number, ttl (ms)
-- Reply  {code, why, code, why, ...}
--        1 extended   2 broken, and why   3 extended, but the node sits out: it does not count
--        4 not there, and may be repaired   0 not there
-- Invariant: only the grant with this owner and this number is extended. A node that sits out confirms nothing: it may
-- have voted for another claim before it forgot (see the model `exclusion-sits-and-confirms`).
-- include clock.lua
-- include marker.lua
local out, theirs = sits_out(KEYS[1], ARGV[1], true)
local reply = {}
for i = 2, #KEYS do
  local owner, number, ttl = ARGV[3 * i - 4], ARGV[3 * i - 3], tonumber(ARGV[3 * i - 2])
  local lock = redis.call('HMGET', KEYS[i], 'o', 'f', 'e', 'c', 'b', 'w', 'v')
  local alive = lock[1] and tonumber(lock[3]) > now
  local code, why = 0, ''
  if alive and lock[1] == owner and lock[2] == number then
    if lock[5] then
      code, why = 2, lock[5]
    else
      redis.call('HSET', KEYS[i], 'e', text(now + ttl))
      local last = math.max(math.floor(tonumber(lock[4]) / 1000), now + ttl)
      redis.call('PEXPIREAT', KEYS[i], text(last + 86400000))
      code = (out > 0 or theirs) and 3 or 1
    end
  elseif lock[6] == owner then
    code, why = 2, lock[7]
  elseif not alive and tonumber(lock[4] or '0') <= tonumber(number) then
    code = 4
  end
  reply[#reply + 1] = code
  reply[#reply + 1] = why
end
return reply
