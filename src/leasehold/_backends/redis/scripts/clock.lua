-- The server's time, once per script: `now_us` for fences, `now` in milliseconds for everything that runs out.
-- Both are exact: a double keeps integers up to 2^53. `text` writes one without an exponent, which `..` would not.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)
local function text(number) return string.format('%.0f', number) end

-- Whether the expiry of the state has to be moved when the highest fence is no longer `before`, but `highest`. It was
-- set to a day after the first of that minute, at least: grants that follow each other set it once a minute.
local function expiry_is_stale(before, highest, ttl)
  return ttl > 43200000 or math.floor(before / 60000000) ~= math.floor(highest / 60000000)
end
