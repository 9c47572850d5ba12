-- Take a lock: now or never, or with a place in the queue.
--
-- KEYS   1-6 as in queue.lua; 7 the mark of a withdrawn claim
-- ARGV   1 step: 0 try, 1 join the queue, 2 keep the place in it; then, after a colon, how many fences shall be kept free
--        behind that of a grant at once   2 owner   3 ttl (ms)   4 mode: x s p   5 kind
--        6 min_hold (ms)   7 description of the holder   8 hint: the highest fence this client has seen
--        to join or stay, or in strict mode: 9 how long a place lives (ms)   10 how to wake this waiter: '' not at all,
--        g or w and a channel: grant or wake by a message there (G or W: sharded)
--        in strict mode only: 11 for how long nothing is granted after the server has changed (ms)
-- Reply  {1, fence, abandoned, now, ttl, again, spare}   granted; again: it was ours already; spare: the fences behind its
--                                                 own that no other grant gets
--        {2, ahead, now, ttl left, description, off}    in the queue; off: for how long the server grants nothing (ms)
--        {0, waiting, ttl left, description, off}       refused; nothing is left of the claim
--        {3, kind}                                the name is in use as another kind of lock
-- Invariant: the same claim sent twice is granted once; its expiry then starts anew. No claim overtakes a waiter.
local owner, mode = ARGV[2], ARGV[4]
local wanted = #ARGV[1] > 1 and mode == 'x' and tonumber(string.sub(ARGV[1], 3)) or 0
-- include clock.lua
local is_turn = string.byte(ARGV[1]) == 50 -- '2'
if mode == 'x' and not ARGV[11] and not is_turn and redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5], KEYS[7]) == 0 then
  -- Free, without waiters: the common case, in as few calls as it takes. A claim that had a place was passed over then,
  -- and has to learn that no message reaches it; or its call is a late copy.
  local state = redis.call('HMGET', KEYS[2], 'f', 'o', 'l', 'p')
  if not state[4] then -- nor paused
    local before = tonumber(state[1] or '0')
    local fence = math.max(before + 1, now_us, tonumber(ARGV[8]) + 1)
    local abandoned = (state[2] or state[3]) and '1' or '0'
    if abandoned == '1' then redis.call('HDEL', KEYS[2], 'l', 'b') end
    local ttl = tonumber(ARGV[3])
    redis.call('SET', KEYS[1], owner, 'PX', ARGV[3])
    local number = text(fence)
    local since = fence == now_us and number or text(now_us)
    local last = wanted > 0 and text(fence + wanted) or number
    redis.call('HSET', KEYS[2], 'f', last, 'k', ARGV[5], 'o', owner, 'g', number, 't', since, 'm', ARGV[6],
               'a', abandoned, 'd', ARGV[7])
    if expiry_is_stale(before, fence + wanted, ttl) then
      redis.call('PEXPIREAT', KEYS[2], text(math.max(math.floor(fence / 1000), now + ttl) + 86400000))
    end
    return {1, fence, tonumber(abandoned), now, ttl, 0, wanted}
  end
end
-- include queue.lua
local step, kind, ttl = string.sub(ARGV[1], 1, 1), ARGV[5], tonumber(ARGV[3])

-- What is in the way, and for how long: a pause, or the first holder.
local function obstacle()
  local description, left = false, paused_left()
  if left > 0 then return left, string.match(pause, '^%d+\n%d+\n(.*)$') end
  if holder == CROWD then
    local first = redis.call('ZRANGE', Z, 0, 0)[1]
    description = first and redis.call('HGET', D, first .. ':d')
  elseif holder and (holder == COOLING or holder == alone) then
    description = alone_description
  end
  return holder and redis.call('PTTL', H) or -2, description or ''
end

local function refused()
  local left, description = obstacle()
  return {0, redis.call('ZCARD', Q), left, description, 0}
end

-- A grant that we have already: its answer was lost, or it was handed over. One that was released is not granted again.
local function repeated()
  if cooling_grant() == owner then return refused() end
  if alone == owner then
    local g = redis.call('HMGET', S, 'a', 'b')
    if g[2] then return refused() end
    redis.call('PEXPIRE', H, text(ttl))
    keep(ttl)
    return {1, tonumber(alone_fence), tonumber(g[1]), now, ttl, 1, tonumber(highest) - tonumber(alone_fence)}
  end
  if not alone and redis.call('ZSCORE', Z, owner) then
    local g = redis.call('HMGET', D, owner .. ':f', owner .. ':a', owner .. ':b', owner .. ':c')
    if g[3] or g[4] then return refused() end
    write_first()
    redis.call('ZADD', Z, text(now + ttl), owner)
    settle_crowd_key()
    keep(ttl)
    return {1, tonumber(g[1]), tonumber(g[2]), now, ttl, 1, 0}
  end
  return nil
end

-- Which life of which server this is, and for how many milliseconds it has surely been the primary. A server that restarts
-- has another run id, a replica that is promoted another replication id. How long ago it was promoted cannot be known, so
-- for a name without state it is taken to have been just now. Asked here and not by the client, which may stand still
-- between its question and this call, while the server is started again.
local function life()
  local server, links = redis.call('INFO', 'server'), redis.call('INFO', 'replication')
  local was_promoted = string.find(string.match(links, 'master_replid2:(%w*)') or '', '[^0]')
  local age = was_promoted and 0 or tonumber(string.match(server, 'uptime_in_seconds:(%d+)')) * 1000
  return string.match(server, 'run_id:(%w+)') .. ':' .. (string.match(links, 'master_replid:(%w+)') or ''), age
end

-- Strict mode: this server may have lost what another one, or its own earlier life, acknowledged. Until every lease of
-- that time is over, nothing is granted. Returns the milliseconds left.
local function held_off()
  if not ARGV[11] then return 0 end
  local off, run, age = tonumber(ARGV[11]), life()
  local known = redis.call('HMGET', S, 'r', 'u')
  local til = tonumber(known[2] or '0')
  if known[1] ~= run then
    til = known[1] and now + off or now + off - age
    redis.call('HSET', S, 'r', run, 'u', text(til))
    keep(off)
  end
  return math.max(0, til - now)
end

notice_the_end_of_grants()
local again = repeated()
if again then return again end
if redis.call('EXISTS', KEYS[7]) == 1 then return refused() end
local queue = redis.call('ZCARD', Q)
if (holder or queue > 0) and (kind_in_use or '0') ~= kind then
  if not holder then -- waiters that are dead do not use the name
    forget_the_dead()
    queue = redis.call('ZCARD', Q)
  end
  if holder or queue > 0 then return {3, kind_in_use or '0'} end
end
if pause and paused_left() == 0 then redis.call('HDEL', S, 'p') end -- over: the next claim finds the common case again
local off = held_off()
local place = queue > 0 and redis.call('ZSCORE', Q, owner)
if is_turn and not place then return refused() end
-- A copy of a first, hasty request may come after the one that took the place, and knows less about the waiter.
local function stand_here() stand(owner, tonumber(ARGV[9]), mode, kind, ARGV[3], ARGV[6], ARGV[8], ARGV[7], ARGV[10]) end
if place and step ~= '0' then
  write_first() -- a place that is there already is kept alive by a full server too
  stand_here()
  forget_the_dead()
end
if off == 0 then
  local mine = queue > 0 and advance(place and owner or false)
  if mine then return {1, mine[1], tonumber(mine[2]), now, ttl, 0, mine[3]} end
  -- A place of its own that it keeps was renewed above, and stands in the queue: where none does, its own has ended too.
  if admits(mode, kind) and (queue == 0 or redis.call('EXISTS', Q) == 0) then
    local fence = next_fence(ARGV[8])
    return {1, fence, tonumber(grant(owner, fence, mode, kind, ttl, ARGV[6], ARGV[7], wanted)), now, ttl, 0, wanted}
  end
end
local left, description = obstacle()
left = math.max(left, off)
if step == '0' then return {0, redis.call('ZCARD', Q), left, description, off} end
if not place then
  redis.call('ZADD', Q, redis.call('HINCRBY', S, 'n', 1), owner)
  if kind_in_use ~= kind then redis.call('HSET', S, 'k', kind) end
  stand_here()
  if not highest then keep(ttl) end
end
return {2, redis.call('ZRANK', Q, owner), now, left, description, off}
