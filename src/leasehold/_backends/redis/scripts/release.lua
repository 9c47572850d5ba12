-- Give a lock back, and hand it to the next waiter.
--
-- KEYS   1-6 as in queue.lua; 7 the mark from which the holder learns that it was broken at once
-- ARGV   1 owner   2 fence
-- Reply  1 freed by us, 0 it was no longer ours, {2, why} broken by an operator: what was kept of it is free now, or as
--        soon as its min_hold is over. Sent twice it gets the same reply, for as long as anything of the grant is there.
-- Invariant: only the grant with this owner and this fence, or one kept free behind it, is touched. No step needs memory that a full server refuses.
local owner, fence = ARGV[1], ARGV[2]
local is_alone = redis.call('GET', KEYS[1]) == owner
local state = is_alone and redis.call('HMGET', KEYS[2], 'g', 'm', 'b', 't')
if is_alone and state[1] ~= fence then
  local first, last, mine = tonumber(state[1]), tonumber(redis.call('HGET', KEYS[2], 'f')), tonumber(fence)
  if mine < first or mine > last then return 0 end
end
if is_alone and state[2] == '0' and redis.call('EXISTS', KEYS[3]) == 0 then
  redis.call('DEL', KEYS[1])
  redis.call('HDEL', KEYS[2], 'o', 'b') -- the description stays until the next holder's, and is not read meanwhile
  return state[3] and {2, state[3]} or 1
end
-- include clock.lua
-- include queue.lua
-- include break_note.lua

-- How much longer it has to be kept, because of min_hold; never longer than that, even if the clock was set back.
local function cooling_left(since_us, min_hold)
  return math.min(0, math.floor(tonumber(since_us) / 1000) - now) + tonumber(min_hold)
end

if is_alone then
  local left = cooling_left(state[4], state[2])
  if left > 0 then
    redis.call('HDEL', S, 'o', 'b')
    redis.call('HSET', S, 'g', fence, 'c', fence .. '\n' .. owner .. (state[3] and '\n' .. state[3] or ''))
    redis.call('SET', H, COOLING, 'PX', text(left))
  else
    pass_on()
  end
  return state[3] and {2, state[3]} or 1
end

notice_the_end_of_grants()
local g = redis.call('HMGET', D, owner .. ':f', owner .. ':m', owner .. ':b', owner .. ':t', owner .. ':c')
if g[1] ~= fence or g[5] then
  if g[1] == fence and g[3] then return {2, g[3]} end -- released before, and kept for its min_hold
  local kept, why = cooling_grant()
  if kept == owner and alone_fence == fence and why then return {2, why} end
  why = reason_of_break(fence)
  return why and {2, why} or 0
end
local left = cooling_left(g[4], g[2])
if left > 0 then
  write_first()
  redis.call('ZADD', Z, text(now + left), owner)
  redis.call('HSET', D, owner .. ':c', '1')
  settle_crowd_key()
else
  forget_in_crowd(owner)
  settle_crowd_key()
  advance(false)
end
return g[3] and {2, g[3]} or 1
