-- The node's time, once per script: `now_us` for numbers, `now` in milliseconds for everything that runs out.
-- Both are exact: a double keeps integers up to 2^53. `text` writes one without an exponent, which `..` would not.
local time = redis.call('TIME')
local now_us = time[1] * 1000000 + time[2]
local now = math.floor(now_us / 1000)
local function text(number) return string.format('%.0f', number) end
local WINDOW_US = 2000000
