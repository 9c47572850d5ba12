-- The holders of these locks on this node.
--
-- KEYS   a lock each, as in vote.lua
-- ARGV   none
-- Reply  {place, number, held for (us), left (ms), broken, description} one after the other, for those that are held
-- include clock.lua
local reply = {}
for i = 1, #KEYS do
  local lock = redis.call('HMGET', KEYS[i], 'o', 'f', 'e', 's', 'b', 'd')
  if lock[1] and tonumber(lock[3]) > now then
    reply[#reply + 1] = i - 1
    reply[#reply + 1] = tonumber(lock[2])
    reply[#reply + 1] = now_us - tonumber(lock[4])
    reply[#reply + 1] = tonumber(lock[3]) - now
    reply[#reply + 1] = lock[5] or ''
    reply[#reply + 1] = lock[6] or ''
  end
end
return reply
