-- Pause a name, or resume it.
--
-- KEYS   1-6 as in queue.lua; 7 a key that is there while the name is paused, by which a list of all names finds it
-- ARGV   1 for how long (ms); 0: resume   2 description of who and why
-- Reply  1 paused, or resumed; 0 it was not paused
-- Invariant: touches no grant and no place. Resuming hands the lock to the next waiter.
-- include clock.lua
-- include queue.lua
write_first()
notice_the_end_of_grants()
local length = tonumber(ARGV[1])
if length > 0 then
  pause = text(now + length) .. '\n' .. text(now_us) .. '\n' .. ARGV[2]
  redis.call('HSET', S, 'p', pause)
  redis.call('SET', KEYS[7], '', 'PX', ARGV[1])
  keep(0)
  return 1
end
local was_paused = paused_left() > 0
redis.call('HDEL', S, 'p')
redis.call('DEL', KEYS[7])
pause = false
keep(0)
advance(false)
return was_paused and 1 or 0
