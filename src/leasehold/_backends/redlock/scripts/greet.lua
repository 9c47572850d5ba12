-- Get to know a node: which process it is, what time it has, and for how long it sits out. Writes nothing.
--
-- KEYS   1 the marker
-- ARGV   1 settings, as in marker.lua
-- Reply  {run id, now (us), sits out (ms), the settings of the marker if they are others, else an empty text}
-- include clock.lua
-- include marker.lua
local out, theirs, run_id = sits_out(KEYS[1], ARGV[1], false)
return {run_id, now_us, out, theirs or ''}
