-- Does something with Redis values only if no later holder has been here.
--
-- KEYS[1]     the register of the resource: a hash of lock, exclusive_fence, exclusive_grant, shared_fence
-- KEYS[2..]   the keys of the body
-- ARGV[1]     the fence; a whole number below 2^53, which Lua keeps exact
-- ARGV[2]     namespace and name of the lock; empty if only the number is known
-- ARGV[3]     which grant it is, as a digest; empty if only the number is known
-- ARGV[4]     'shared' or 'exclusive'
-- ARGV[5]     how long the register is kept after this, in milliseconds; '0' for ever
-- ARGV[6..]   the arguments of the body
-- reply       what the body returns; or the error LEASEHOLD_STALE with the highest fence seen, or LEASEHOLD_LOCK when the
--             register belongs to another lock; then nothing was done
-- invariant   neither fence of a register ever falls; the body runs only under the newest
local function body(KEYS, ARGV)
--BODY--
end

local fence = tonumber(ARGV[1])
local lock, grant = ARGV[2], ARGV[3]
local kept = redis.call('HMGET', KEYS[1], 'lock', 'exclusive_fence', 'exclusive_grant', 'shared_fence')
local kept_lock, kept_grant = kept[1] or '', kept[3] or ''
local exclusive, shared = tonumber(kept[2] or '0'), tonumber(kept[4] or '0')

if lock ~= '' and kept_lock ~= '' and lock ~= kept_lock then
  return redis.error_reply('LEASEHOLD_LOCK the resource belongs to another lock')
end

if ARGV[4] == 'shared' then
  if fence <= exclusive then
    return redis.error_reply('LEASEHOLD_STALE ' .. kept[2])
  end
  if fence > shared then
    redis.call('HSET', KEYS[1], 'shared_fence', ARGV[1])
  end
else
  local is_same = fence == exclusive and (grant == '' or kept_grant == '' or grant == kept_grant)
  if fence < exclusive or (fence == exclusive and not is_same) or fence <= shared then
    return redis.error_reply('LEASEHOLD_STALE ' .. (exclusive > shared and kept[2] or kept[4]))
  end
  if not is_same then
    redis.call('HSET', KEYS[1], 'exclusive_fence', ARGV[1], 'exclusive_grant', grant)
  elseif kept_grant == '' and grant ~= '' then
    redis.call('HSET', KEYS[1], 'exclusive_grant', grant)
  end
end
if kept_lock == '' and lock ~= '' then
  redis.call('HSET', KEYS[1], 'lock', lock)
end
if ARGV[5] ~= '0' then
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
else
  redis.call('PERSIST', KEYS[1])
end

local keys, arguments = {}, {}
for place = 2, #KEYS do
  keys[place - 1] = KEYS[place]
end
for place = 6, #ARGV do
  arguments[place - 5] = ARGV[place]
end
return body(keys, arguments)
