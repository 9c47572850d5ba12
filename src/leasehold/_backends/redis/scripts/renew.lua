-- Extend one grant. All that are due are sent in one pipeline.
--
-- KEYS   1-6 as in queue.lua; 7 the mark of a claim that was withdrawn, or broken at once
-- ARGV   1 owner   2 fence   3 ttl (ms)
-- Reply  {1} extended, {0} not ours any more, {2, why} broken by an operator
-- Invariant: extends only the grant with this owner and this fence, and never revives one that is over. A fence that was
-- kept free behind that of the grant is the grant's from now on: it was passed on inside the process of its holder.
local owner, fence = ARGV[1], ARGV[2]
-- include clock.lua
-- include break_note.lua
local ttl = tonumber(ARGV[3])
local highest, pause = false, false

local holder = redis.call('GET', KEYS[1])
if holder == owner then
  local state = redis.call('HMGET', KEYS[2], 'g', 'b', 'f', 'p')
  local is_later = state[1] and state[1] ~= fence and tonumber(state[1]) < tonumber(fence)
  if state[1] == fence or (is_later and tonumber(fence) <= tonumber(state[3])) then
    if state[2] then return {2, state[2]} end
    redis.call('PEXPIRE', KEYS[1], ARGV[3])
    if is_later then redis.call('HSET', KEYS[2], 'g', fence) end
    highest, pause = state[3], state[4]
  end
elseif holder == '*cooling*' then -- released, and kept for its min_hold: see cooling_grant in queue.lua
  local state = redis.call('HMGET', KEYS[2], 'g', 'c')
  local start = fence .. '\n' .. owner .. '\n'
  if state[1] == fence and state[2] and string.sub(state[2], 1, #start) == start then
    return {2, string.sub(state[2], #start + 1)}
  end
else
  local ends = redis.call('ZSCORE', KEYS[5], owner)
  local g = ends and redis.call('HMGET', KEYS[6], owner .. ':f', owner .. ':b', owner .. ':c')
  local is_there = ends and tonumber(ends) > now and g[1] == fence
  if is_there and g[2] then return {2, g[2]} end
  if is_there and not g[3] then
    redis.call('ZREM', KEYS[3], '') -- see write_first in queue.lua: a full server must not end what is held
    redis.call('ZADD', KEYS[5], text(now + ttl), owner)
    local last = tonumber(redis.call('ZREVRANGE', KEYS[5], 0, 0, 'WITHSCORES')[2])
    redis.call('PEXPIREAT', KEYS[1], text(last))
    redis.call('PEXPIREAT', KEYS[5], text(last + 86400000))
    redis.call('PEXPIREAT', KEYS[6], text(last + 86400000))
    local state = redis.call('HMGET', KEYS[2], 'f', 'p')
    highest, pause = state[1] or '0', state[2]
  end
end
if highest then
  local ends = math.max(now + ttl, pause and tonumber(string.match(pause, '^%d+')) or 0)
  redis.call('PEXPIREAT', KEYS[2], text(math.max(math.floor(tonumber(highest) / 1000), ends) + 86400000))
  return {1}
end
local why = reason_of_break(fence)
return why and {2, why} or {0}
