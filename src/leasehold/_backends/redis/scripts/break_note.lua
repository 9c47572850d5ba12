-- The note in KEYS[7] of a grant that was broken at once: b and the reason, then its fence in a line. Returns the reason if
-- it is about the grant with this fence, or with one before that: while it is there its claim is not granted anew. A note without a fence comes from an earlier version, and is about any.
local function reason_of_break(fence)
  local note = redis.call('GET', KEYS[7]) or ''
  local why, broken_fence = string.match(note, '^b(.*)\n(%d+)$')
  if why then return tonumber(broken_fence) <= tonumber(fence) and why end
  return string.match(note, '^b(.*)$')
end
