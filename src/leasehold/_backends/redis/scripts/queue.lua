-- Holders, waiters and hand-over: the part shared by all scripts that may change them. Needs clock.lua.
--
-- Keys   H  holder      string   one holder: its owner; several: CROWD; released, but kept for min_hold: COOLING
--        S  state       hash     f highest fence, k kind, n last ticket, l a grant ended without a release;
--                                (or kept free behind that of the holder);
--                                of a single holder: o owner, g fence, t since (us), m min_hold, a abandoned,
--                                b broken (why), d description; c of the one that is COOLING: see `cooling_grant`
--                                strict mode: r which life of the server, u held off until
--                                p the pause of the name, in lines: until when (ms), since when (us), who and why
--        Q  queue       zset     owner of each waiter, by ticket
--        W  waiters     hash     by owner, the claim of each waiter, in lines: see `stand`
--        Z  crowd       zset     owner of each of several holders, by when its ttl is over
--        D  crowd       hash     owner:field of each of several holders: f t m a b c d as above; c is cooling
-- Kind   '0' for a lock, exclusive or shared; the number of permits for a semaphore.
--
-- Invariant: after a script no waiter that could be let in is in the queue, unless it polls (it has no channel, or takes
-- no hand-over). So a new claim is let in only when the queue is empty. And nothing is published before the script has
-- written.
local H, S, Q, W, Z, D = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
local CROWD, COOLING = '*several*', '*cooling*'
local DAY, QUEUE_KEPT = 86400000, 20000
local SPARE = 64 -- fences kept free behind that of an exclusive grant out of the queue: its process may use them
local WAITER = '^(%d+)\n(%a)\n(%d+)\n(%d+)\n(%d+)\n(%d+)\n(%d+)\n([^\n]*)\n(.*)$'

-- A call of the server costs more than anything else here. So what nearly every script needs is read once, and a change
-- is made in both places. What is not there is false.
local holder = redis.call('GET', H)
local highest, kind_in_use, left_behind, alone, alone_fence, alone_description, broken, cooling, pause =
  unpack(redis.call('HMGET', S, 'f', 'k', 'l', 'o', 'g', 'd', 'b', 'c', 'p'))

-- A server that refuses writes (READONLY, NOREPLICAS, MISCONF, OOM) refuses the first of a script. This one changes
-- nothing and needs no memory, and after it nothing is refused: a server that is full still keeps what it has in order.
local function write_first() redis.call('ZREM', Q, '') end

-- The fence of the next grant: above all before, not below the clock, above what the client has seen.
local function next_fence(hint)
  return math.max(tonumber(highest or '0') + 1, now_us, tonumber(hint) + 1)
end

-- For how much longer the name is paused, and not granted. 0: it is not.
local function paused_left()
  return pause and math.max(0, tonumber(string.match(pause, '^%d+')) - now) or 0
end

-- The state outlives the grant and the pause, and the fence outlives its own time by a day: a clock that comes back to
-- it later gives a higher one by itself.
local function keep(ttl)
  local ends = now + math.max(ttl, paused_left())
  redis.call('PEXPIREAT', S, text(math.max(math.floor(tonumber(highest or '0') / 1000), ends) + DAY))
end

local function note_abandonment()
  if not left_behind then redis.call('HSET', S, 'l', '1') end
  left_behind = '1'
end

-- The holder key lasts as long as the last of several holders. Their details are kept a day longer, so that the next
-- one learns that a grant ended without a release.
local function settle_crowd_key()
  local last = redis.call('ZREVRANGE', Z, 0, 0, 'WITHSCORES')
  if not last[1] then
    redis.call('DEL', H)
    holder = false
    return
  end
  redis.call('SET', H, CROWD, 'PX', text(math.max(1, tonumber(last[2]) - now)))
  redis.call('PEXPIREAT', Z, text(tonumber(last[2]) + DAY))
  redis.call('PEXPIREAT', D, text(tonumber(last[2]) + DAY))
  holder = CROWD
end

local function forget_in_crowd(owner)
  redis.call('ZREM', Z, owner)
  redis.call('HDEL', D, owner .. ':f', owner .. ':t', owner .. ':m', owner .. ':a', owner .. ':b', owner .. ':c',
             owner .. ':d')
end

-- Notice which grants ran out since the last script: without a release their work may be half done.
local function notice_the_end_of_grants()
  if alone and holder == alone then return end -- then there is no crowd
  if alone then
    redis.call('HDEL', S, 'o', 'b', 'd')
    alone, alone_description = false, false
    note_abandonment()
  end
  local over = redis.call('ZRANGEBYSCORE', Z, '-inf', text(now))
  for _, gone in ipairs(over) do
    if not redis.call('HGET', D, gone .. ':c') then note_abandonment() end
    forget_in_crowd(gone)
  end
  if #over > 0 then settle_crowd_key() end
end

-- The exclusive grant that was released and is kept for its min_hold: its owner, and why it was broken, if it was.
-- The field c has its fence, its owner and the reason, in lines. It is a field apart, and not o and b, which scripts of
-- earlier versions take for those of a holder. They do not write it: with another fence it is left from a grant before.
local function cooling_grant()
  if holder ~= COOLING then return nil end
  local fence, owner, why = string.match(cooling or '', '^(%d+)\n([^\n]*)(.*)$')
  if fence ~= alone_fence then return nil end
  return owner, why ~= '' and string.sub(why, 2)
end

local function admits(mode, kind)
  if paused_left() > 0 then return false end
  if not holder then return true end
  if mode == 'x' or holder ~= CROWD then return false end
  return mode == 's' or redis.call('ZCARD', Z) < tonumber(kind)
end

-- Make this owner a holder, with so many fences behind its own that no other grant gets. Returns whether the one before
-- left without releasing.
local function grant(owner, fence, mode, kind, ttl, min_hold, description, spare)
  local abandoned, number, last = left_behind and '1' or '0', text(fence), text(fence + spare)
  if mode == 'x' then
    redis.call('SET', H, owner, 'PX', text(ttl))
    redis.call('HSET', S, 'f', last, 'k', kind, 'o', owner, 'g', number, 't', text(now_us), 'm', min_hold,
               'a', abandoned, 'd', description)
    if left_behind then redis.call('HDEL', S, 'l') end
    holder, alone, alone_fence, alone_description = owner, owner, number, description
  else
    redis.call('HSET', S, 'f', number, 'k', kind)
    if left_behind then redis.call('HDEL', S, 'l') end
    redis.call('ZADD', Z, text(now + ttl), owner)
    redis.call('HSET', D, owner .. ':f', number, owner .. ':t', text(now_us), owner .. ':m', min_hold,
               owner .. ':a', abandoned, owner .. ':d', description)
    settle_crowd_key()
  end
  highest, kind_in_use, left_behind = last, kind, false
  keep(ttl)
  return abandoned
end

-- Write, or refresh, the line of a waiter: until when its place lives, its claim, whether it has missed a re-check
-- (`window` before the end), how to wake it.
local function stand(owner, lifetime, mode, kind, ttl, min_hold, hint, description, push)
  local lines = {text(now + lifetime), mode, kind, ttl, min_hold, text(math.ceil(lifetime / 2)), hint, description, push}
  redis.call('HSET', W, owner, table.concat(lines, '\n'))
  redis.call('PEXPIRE', Q, QUEUE_KEPT)
  redis.call('PEXPIRE', W, QUEUE_KEPT)
end

local function leave_queue(owner)
  redis.call('ZREM', Q, owner)
  redis.call('HDEL', W, owner)
end

-- Waiters at the head of the queue without a call for too long are not waited for, and not counted.
local function forget_the_dead()
  while true do
    local head = redis.call('ZRANGE', Q, 0, 0)[1]
    local expires = head and string.match(redis.call('HGET', W, head) or '', WAITER)
    if not head or (expires and tonumber(expires) > now) then return end
    leave_queue(head)
  end
end

-- Notify the waiter on its client's channel; the number of receivers, or nil if this account may not publish. A server
-- that refuses writes never refuses a message, so a write goes first, or a message would bring a grant that is not made.
local function notify(push, message)
  write_first()
  local how = string.sub(push, 1, 1)
  local command = (how == 'G' or how == 'W') and 'SPUBLISH' or 'PUBLISH'
  local receivers = redis.pcall(command, string.sub(push, 2), message)
  if type(receivers) == 'table' then return nil end
  return receivers
end

-- Hand the lock to the head of the queue, again and again while it can be let in. A waiter without a call for too
-- long, or whose client is gone, is skipped. Returns {fence, abandoned, spare} if `me` was let in.
local function advance(me)
  local mine = nil
  while not holder or holder == CROWD do
    local head = redis.call('ZRANGE', Q, 0, 0)[1]
    if not head then return mine end
    local waiter = redis.call('HGET', W, head)
    local expires, mode, kind, ttl, min_hold, window, hint, description, push = string.match(waiter or '', WAITER)
    if not expires or tonumber(expires) <= now then
      leave_queue(head)
    elseif not admits(mode, kind) then
      return mine
    elseif head == me then
      local fence, spare = next_fence(hint), mode == 'x' and SPARE or 0
      mine = {fence, grant(head, fence, mode, kind, tonumber(ttl), min_hold, description, spare), spare}
      leave_queue(head)
    else
      local how = string.sub(push, 1, 1)
      if how == 'g' or how == 'G' then
        -- With a recent call it gets its whole ttl. Otherwise it may be dead, and gets a claim window only.
        local granted = tonumber(ttl)
        if tonumber(expires) - now < tonumber(window) then granted = math.min(granted, tonumber(window)) end
        -- One field says that the last holder vanished (1), or else how many fences are kept free (r and the number, 0
        -- for none). A client of an earlier version reads all but 1 as "no", and uses none.
        local fence, spare = next_fence(hint), mode == 'x' and not left_behind and SPARE or 0
        local left = left_behind and '1' or spare > 0 and 'r' .. spare or '0'
        local receivers = notify(push, table.concat({'g', head, text(fence), text(now), left, text(granted)}, '\n'))
        if receivers == nil then return mine end
        if receivers > 0 then grant(head, fence, mode, kind, granted, min_hold, description, spare) end
        leave_queue(head)
      elseif how == '' then
        return mine
      else
        local receivers = notify(push, 'w\n' .. head)
        if receivers ~= 0 then return mine end
        leave_queue(head)
      end
    end
  end
  return mine
end

-- The single holder is through with it: hand it to the head of the queue, or free it.
local function pass_on()
  holder, alone, alone_description = false, false, false
  advance(false)
  if not holder then redis.call('DEL', H) end
  if not alone then
    redis.call('HDEL', S, 'o', 'b', 'd')
  elseif broken then
    redis.call('HDEL', S, 'b')
  end
end
