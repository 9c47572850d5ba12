-- The holders and waiters of a lock.
--
-- KEYS   1-6 as in queue.lua
-- ARGV   none
-- Reply  {kind, holders, waiters}
--        holders {owner, mode, fence, held for (us), ttl left (ms), broken, cooling, description} one after the other
--        waiters {mode, description} one after the other
--        a foreign value under the holder key is a holder without description, with fence 0
--        a pause is a holder without owner, mode and fence, whose description has the mark of a pause
-- include clock.lua
-- include queue.lua
notice_the_end_of_grants()
local kind = kind_in_use or '0'
local holders, waiters = {}, {}

local function add(owner, mode, fence, since, left, broken, cooling, description)
  local held = since and text(now_us - tonumber(since)) or '0'
  for _, part in ipairs({owner, mode, fence or '0', held, text(left), broken or '', cooling, description or ''}) do
    holders[#holders + 1] = part
  end
end

if holder == CROWD then
  local mode = kind == '0' and 's' or 'p'
  local crowd = redis.call('ZRANGE', Z, 0, -1, 'WITHSCORES')
  for i = 1, #crowd, 2 do
    local owner = crowd[i]
    local g = redis.call('HMGET', D, owner .. ':f', owner .. ':t', owner .. ':b', owner .. ':c', owner .. ':d')
    add(owner, mode, g[1], g[2], tonumber(crowd[i + 1]) - now, g[3], g[4] and '1' or '0', g[5])
  end
elseif holder then
  local g = redis.call('HMGET', S, 't', 'b')
  local left = redis.call('PTTL', H)
  if holder == COOLING then
    local _, why = cooling_grant()
    add('', 'x', alone_fence, g[1], left, why, '1', alone_description)
  elseif holder == alone then
    add(holder, 'x', alone_fence, g[1], left, g[2], '0', alone_description)
  else
    add('', 'x', false, false, left, false, '0', false)
  end
end
if paused_left() > 0 then
  local since, description = string.match(pause, '^%d+\n(%d+)\n(.*)$')
  add('', '', '0', since, paused_left(), false, '0', description)
end
for _, owner in ipairs(redis.call('ZRANGE', Q, 0, -1)) do
  local expires, mode, _, _, _, _, _, description = string.match(redis.call('HGET', W, owner) or '', WAITER)
  if expires and tonumber(expires) > now then
    waiters[#waiters + 1] = mode
    waiters[#waiters + 1] = description
  end
end
return {kind, holders, waiters}
