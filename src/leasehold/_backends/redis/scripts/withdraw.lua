-- Undo a claim whatever became of it: queued, granted, or still under way.
--
-- KEYS   1-6 as in queue.lua; 7 the mark that refuses a late copy of the claim
-- ARGV   1 owner   2 for how long a late copy is refused (ms); 0: none can come, and nothing is left of the claim
-- Reply  1
-- Invariant: afterwards nothing of this claim is in the store but its mark, and nothing can be while that is there. A
-- server that is full does it as well.
-- include clock.lua
-- include queue.lua
local owner = ARGV[1]
leave_queue(owner)
local mark = ARGV[2] ~= '0' and redis.call('GET', KEYS[7])
if ARGV[2] == '0' then
  redis.call('DEL', KEYS[7])
elseif mark and string.sub(mark, 1, 1) == 'b' then
  -- Broken at once: it refuses a late copy as well, and has the reason for a release that is sent again.
  redis.call('PEXPIRE', KEYS[7], ARGV[2])
else
  redis.call('SET', KEYS[7], 'w', 'PX', ARGV[2])
end
notice_the_end_of_grants()
if alone == owner then
  -- If the one before left without releasing, this one never got to know: the next has to.
  if redis.call('HGET', S, 'a') == '1' then note_abandonment() end
  pass_on()
  return 1
end
if redis.call('ZSCORE', Z, owner) and not redis.call('HGET', D, owner .. ':c') then
  if redis.call('HGET', D, owner .. ':a') == '1' then note_abandonment() end
  forget_in_crowd(owner)
  settle_crowd_key()
end
advance(false)
return 1
