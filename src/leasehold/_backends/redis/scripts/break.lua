-- End a grant by an operator's order. Its place stays taken until its ttl is over, unless `now`.
--
-- KEYS   1-6 as in queue.lua; 7 the mark from which the holder learns why it was broken at once
-- ARGV   1 owner   2 fence   3 why   4 '1' at once
-- Reply  1 broken, 0 this grant is not held
-- Invariant: only the grant with this owner and this fence, or one kept free behind it, is touched.
-- include clock.lua
-- include queue.lua
local owner, fence, why, at_once = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1'
local number = tonumber(fence)
write_first() -- an operator can do this on a full server too
notice_the_end_of_grants()
if alone == owner and tonumber(alone_fence) <= number and number <= tonumber(highest) then fence = alone_fence end
local note = 'b' .. why .. '\n' .. fence -- see break_note.lua
if alone == owner and alone_fence == fence then
  if not at_once then
    redis.call('HSET', S, 'b', why)
    return 1
  end
  redis.call('SET', KEYS[7], note, 'PX', text(math.max(1, redis.call('PTTL', H))))
  note_abandonment()
  pass_on()
  return 1
elseif redis.call('HGET', D, owner .. ':f') == fence and not redis.call('HGET', D, owner .. ':c') then
  if not at_once then
    redis.call('HSET', D, owner .. ':b', why)
    return 1
  end
  local left = tonumber(redis.call('ZSCORE', Z, owner)) - now
  redis.call('SET', KEYS[7], note, 'PX', text(math.max(1, left)))
  forget_in_crowd(owner)
  settle_crowd_key()
else
  return 0
end
note_abandonment()
advance(false)
return 1
