"""Known bugs of the Redis store, in its scripts and in the code around them.

They are hunted by the simulation over the simulated server, then by the contract over it.
"""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["REDIS_MUTANTS"]

_SCRIPTS = "_backends/redis/scripts/"
_ACQUIRE = _SCRIPTS + "acquire.lua"
_BREAK = _SCRIPTS + "break.lua"
_CLOCK = _SCRIPTS + "clock.lua"
_QUEUE = _SCRIPTS + "queue.lua"
_RAISE = _SCRIPTS + "raise_fence.lua"
_READ = _SCRIPTS + "read_record.lua"
_RELEASE = _SCRIPTS + "release.lua"
_RENEW = _SCRIPTS + "renew.lua"
_WITHDRAW = _SCRIPTS + "withdraw.lua"
_WRITE = _SCRIPTS + "write_record.lua"
_BACKEND = "_backends/redis/backend.py"
_ROUTER = "_backends/redis/router.py"
_FINDINGS = "tests/simulation/test_redis_findings.py"

REDIS_MUTANTS: tuple[Mutant, ...] = (
    # --- whose grant it is
    Mutant(
        "redis-renews-any-fence",
        "a renewal extends another grant of the same owner",
        _RENEW,
        "  if state[1] == fence or (is_later and tonumber(fence) <= tonumber(state[3])) then\n",
        "  if state[1] then\n",
    ),
    Mutant(
        "redis-renewal-revives",
        "a renewal revives one of several holders whose time is over",
        _RENEW,
        "  local is_there = ends and tonumber(ends) > now and g[1] == fence\n",
        "  local is_there = ends and g[1] == fence\n",
    ),
    Mutant(
        "redis-renews-broken",
        "a broken grant can be renewed",
        _RENEW,
        "    if state[2] then return {2, state[2]} end\n",
        "",
    ),
    Mutant(
        "redis-releases-another",
        "a late release frees the next holder's lock",
        _RELEASE,
        "local is_alone = redis.call('GET', KEYS[1]) == owner\n"
        "local state = is_alone and redis.call('HMGET', KEYS[2], 'g', 'm', 'b', 't')\n"
        "if is_alone and state[1] ~= fence then\n",
        "local is_alone = redis.call('EXISTS', KEYS[1]) == 1 and redis.call('GET', KEYS[1]) ~= '*several*'\n"
        "local state = is_alone and redis.call('HMGET', KEYS[2], 'g', 'm', 'b', 't')\n"
        "if false then\n",
    ),
    Mutant(
        "redis-releases-any-fence",
        "a release frees another grant of the same owner",
        _RELEASE,
        "  if mine < first or mine > last then return 0 end\n",
        "",
    ),
    Mutant(
        "redis-releases-any-share",
        "a release frees another grant of the same owner, one of several holders",
        _RELEASE,
        "if g[1] ~= fence or g[5] then\n",
        "if not g[1] or g[5] then\n",
    ),
    Mutant(
        "redis-grants-a-copy-anew",
        "a repeated claim is a claim of its own",
        _ACQUIRE,
        "if again then return again end\n",
        "",
    ),
    Mutant(
        "redis-repeat-not-refreshed",
        "a repeated claim is confirmed without a new expiry",
        _ACQUIRE,
        "    redis.call('PEXPIRE', H, text(ttl))\n    keep(ttl)\n",
        "    keep(ttl)\n",
    ),
    # --- grants
    Mutant(
        "redis-one-permit-too-many",
        "a semaphore admits one more than its capacity",
        _QUEUE,
        "redis.call('ZCARD', Z) < tonumber(kind)\n",
        "redis.call('ZCARD', Z) <= tonumber(kind)\n",
    ),
    Mutant(
        "redis-reader-beside-writer",
        "a reader is admitted beside a writer",
        _QUEUE,
        "  if mode == 'x' or holder ~= CROWD then return false end\n",
        "  if mode == 'x' then return false end\n",
    ),
    Mutant(
        "redis-crowd-ends-with-the-first",
        "several holders are forgotten when the first of them is over",
        _QUEUE,
        "  local last = redis.call('ZREVRANGE', Z, 0, 0, 'WITHSCORES')\n",
        "  local last = redis.call('ZRANGE', Z, 0, 0, 'WITHSCORES')\n",
    ),
    Mutant(
        "redis-renewal-of-one-alone",
        "the renewal of one of several holders does not keep the holder key",
        _RENEW,
        "    redis.call('PEXPIREAT', KEYS[1], text(last))\n",
        "",
    ),
    Mutant(
        "redis-min-hold-ignored",
        "min_hold does not keep the lock",
        _RELEASE,
        "  local left = cooling_left(state[4], state[2])\n",
        "  local left = 0\n",
    ),
    Mutant(
        "redis-min-hold-of-a-share-ignored",
        "min_hold does not keep the place of one of several holders",
        _RELEASE,
        "local left = cooling_left(g[4], g[2])\n",
        "local left = 0\n",
    ),
    Mutant(
        "redis-clock-set-back",
        "a release keeps the lock until the clock has caught up with the moment of the grant",
        _RELEASE,
        "  return math.min(0, math.floor(tonumber(since_us) / 1000) - now) + tonumber(min_hold)\n",
        "  return math.floor(tonumber(since_us) / 1000) + tonumber(min_hold) - now\n",
    ),
    # --- the queue
    Mutant(
        "redis-dead-waiter-served",
        "the lock is handed to a waiter without a call for too long",
        _QUEUE,
        "    if not expires or tonumber(expires) <= now then\n",
        "    if not expires then\n",
    ),
    Mutant(
        "redis-no-receiver",
        "a waiter whose client is gone is made the holder",
        _QUEUE,
        "        if receivers > 0 then grant(head,",
        "        if receivers >= 0 then grant(head,",
    ),
    Mutant(
        "redis-tells-before-it-writes",
        "a message announces a grant that the server then refuses to make",
        _QUEUE,
        "local function write_first() redis.call('ZREM', Q, '') end\n",
        "local function write_first() end\n",
    ),
    Mutant(
        "redis-try-overtakes",
        "a claim is granted although another one waits",
        _ACQUIRE,
        "  if admits(mode, kind) and (queue == 0 or redis.call('EXISTS', Q) == 0) then\n",
        "  if not place and admits(mode, kind) then\n",
    ),
    Mutant(
        "redis-quick-try-overtakes",
        "the short way to a free lock does not look at the queue",
        _ACQUIRE,
        "redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5], KEYS[7]) == 0",
        "redis.call('EXISTS', KEYS[1], KEYS[5], KEYS[7]) == 0",
    ),
    Mutant(
        "redis-place-lost-by-asking",
        "a waiter that calls again goes to the end of the queue",
        _ACQUIRE,
        "if not place then\n  redis.call('ZADD', Q,",
        "if true then\n  redis.call('ZADD', Q,",
    ),
    Mutant(
        "redis-one-at-a-time",
        "of several waiters that could be let in together only the first is",
        _QUEUE,
        "min_hold, description, spare) end\n        leave_queue(head)\n",
        "min_hold, description, spare) end\n        leave_queue(head)\n        if true then return mine end\n",
    ),
    Mutant(
        "redis-place-not-refreshed",
        "asking again does not keep a place alive",
        _ACQUIRE,
        "place that is there already is kept alive by a full server too\n  stand_here()\n",
        "place that is there already is kept alive by a full server too\n",
    ),
    Mutant(
        "redis-withdrawn-waiter-stays",
        "a waiter that withdraws keeps its place",
        _WITHDRAW,
        "leave_queue(owner)\n",
        "",
    ),
    Mutant(
        "redis-withdrawal-without-mark",
        "a withdrawn claim that arrives late is granted",
        _WITHDRAW,
        "redis.call('SET', KEYS[7], 'w', 'PX', ARGV[2])\n",
        "",
    ),
    Mutant(
        "redis-mark-overlooked",
        "the short way to a free lock does not look for the mark of a withdrawal",
        _ACQUIRE,
        "redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5], KEYS[7]) == 0",
        "redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5]) == 0",
    ),
    Mutant(
        "redis-hold-off-without-a-place",
        "a claim on a server that holds off is refused instead of queued, and comes back at once",
        _ACQUIRE,
        "if step == '0' then return {0, ",
        "if step == '0' or off > 0 then return {0, ",
    ),
    # --- fences
    Mutant(
        "redis-fence-is-a-counter",
        "the fence is counted from what the server remembers",
        _ACQUIRE,
        "    local fence = math.max(before + 1, now_us, tonumber(ARGV[8]) + 1)\n",
        "    local fence = before + 1\n",
    ),
    Mutant(
        "redis-fence-is-the-clock",
        "the fence is the server's time, whatever was given before",
        _ACQUIRE,
        "    local fence = math.max(before + 1, now_us, tonumber(ARGV[8]) + 1)\n",
        "    local fence = now_us\n",
    ),
    Mutant(
        "redis-handed-fence-is-a-counter",
        "the fence of a hand-over is counted from what the server remembers",
        _QUEUE,
        "  return math.max(tonumber(highest or '0') + 1, now_us, tonumber(hint) + 1)\n",
        "  return tonumber(highest or '0') + 1\n",
    ),
    Mutant(
        "redis-fence-forgotten-too-soon",
        "a fence that ran ahead is remembered for a day from the grant",
        _ACQUIRE,
        "text(math.max(math.floor(fence / 1000), now + ttl) + 86400000))\n",
        "text(now + ttl + 86400000))\n",
    ),
    Mutant(
        "redis-state-kept-for-ever",
        "the state of a lock never expires",
        _QUEUE,
        "  redis.call('PEXPIREAT', S, text(math.max(math.floor(tonumber(highest or '0') / 1000), ends) + DAY))\n",
        "",
    ),
    Mutant(
        "redis-number-as-text",
        "numbers are written with fourteen digits",
        _CLOCK,
        "return string.format('%.0f', number) end",
        "return '' .. number end",
    ),
    Mutant(
        "redis-fence-lowered",
        "raising the fence can lower it",
        _RAISE,
        "local highest = math.max(tonumber(redis.call('HGET', KEYS[2], 'f') or '0'), tonumber(ARGV[1]))\n",
        "local highest = tonumber(ARGV[1])\n",
    ),
    Mutant(
        "redis-record-without-fence",
        "a record is written under a lower fence",
        _WRITE,
        "if fence < highest then return 0 end\n",
        "",
    ),
    Mutant(
        "redis-reading-raises-nothing",
        "reading under a fence does not keep lower ones from writing",
        _READ,
        "if fence > highest then\n",
        "if false then\n",
    ),
    # --- what the next holder learns
    Mutant(
        "redis-abandoned-not-noted",
        "the next holder does not learn that the last one vanished",
        _QUEUE,
        "    alone, alone_description = false, false\n    note_abandonment()\n",
        "    alone, alone_description = false, false\n",
    ),
    Mutant(
        "redis-abandoned-share-overlooked",
        "the short way to a free lock does not see that one of several holders vanished",
        _ACQUIRE,
        "redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[5], KEYS[7]) == 0",
        "redis.call('EXISTS', KEYS[1], KEYS[3], KEYS[7]) == 0",
    ),
    Mutant(
        "redis-break-without-mark",
        "a holder that was broken at once does not learn why",
        _BREAK,
        "  redis.call('SET', KEYS[7], note, 'PX', text(math.max(1, redis.call('PTTL', H))))\n",
        "",
    ),
    Mutant(
        "redis-break-without-effect",
        "a broken lock is not marked as broken",
        _BREAK,
        "    redis.call('HSET', S, 'b', why)\n",
        "",
    ),
    # --- the client's side
    Mutant(
        "redis-handed-over-now",
        "a grant that came by message is counted from its arrival",
        _BACKEND,
        "        since = handed_over_since(waiter.sent, max(0, handed.at - waiter.stamp - 1) / 1000)\n",
        "        since = self._runtime.now()\n",
    ),
    Mutant(
        "redis-drift-forgotten",
        "the time that a waiter has waited on the server's clock is taken for one on its own",
        _BACKEND,
        "handed_over_since(waiter.sent, ",
        "(waiter.sent + ",
    ),
    Mutant(
        "redis-claim-window-ignored",
        "a grant for a claim window is believed for the whole ttl",
        _BACKEND,
        "        return Grant(claim, handed.fence, handed.ttl, since, handed.abandoned, handed.spare)\n",
        "        return Grant(claim, handed.fence, claim.ttl, since, handed.abandoned, handed.spare)\n",
        tests=(f"{_FINDINGS}::test_a_hand_over_after_a_missed_recheck_is_believed_for_its_claim_window_only",),
    ),
    Mutant(
        "redis-late-hand-over-believed",
        "a hand-over is believed however late it is taken up, so that a step of the server's clock can hide behind it",
        _BACKEND,
        "        if now > min(since + lifetime / 4, waiter.sent + lifetime / 2):\n",
        "        if lifetime < 0:\n",
    ),
    Mutant(
        "redis-no-recheck",
        "a waiter relies on messages alone",
        _BACKEND,
        "        recheck = _place_lifetime(claim) / 3\n",
        "        recheck = _place_lifetime(claim) * 3\n",
    ),
    Mutant(
        "redis-deaf-for-ever",
        "a client that was passed over does not look whether it can be reached",
        _BACKEND,
        "            self._listener.verify(keys)\n        self._listener.remove(claim.owner)\n        return self._ref",
        "            pass\n        self._listener.remove(claim.owner)\n        return self._ref",
    ),
    Mutant(
        "redis-waits-for-a-dead-subscription",
        "a waiter loses its place while its client waits for a connection that is dead",
        _BACKEND,
        "LISTENING = 6  #",
        "LISTENING = 0.3  #",
    ),
    Mutant(
        "redis-life-by-process",
        "strict mode does not notice that the first primary was promoted again",
        _ACQUIRE,
        " .. ':' .. (string.match(links, 'master_replid:(%w+)') or ''), age\n",
        ", age\n",
    ),
    Mutant(
        "redis-age-by-process",
        "strict mode takes a promoted replica for a primary of the same age",
        _ACQUIRE,
        "  local age = was_promoted and 0 or tonumber(",
        "  local age = tonumber(",
    ),
    Mutant(
        "redis-script-not-sent",
        "a server that has not cached a script does not get its text",
        _ROUTER,
        "                payload = asking + call.whole  #",
        '                payload = asking + (call.short if code == "NOSCRIPT" else call.whole)  #',
    ),
    Mutant(
        "redis-remembers-its-place",
        "a claim whose place has ended is refused a lock that is free",
        _ACQUIRE,
        "  if admits(mode, kind) and (queue == 0 or redis.call('EXISTS', Q) == 0) then\n",
        "  if not place and admits(mode, kind) and (queue == 0 or redis.call('EXISTS', Q) == 0) then\n",
        (f"{_FINDINGS}::test_a_claim_whose_place_has_ended_is_not_refused_a_free_lock",),
    ),
    Mutant(
        "redis-turn-takes-the-short-way",
        "a waiter that was passed over gets the free lock and does not learn that no message reaches it",
        _ACQUIRE,
        "and not ARGV[11] and not is_turn and redis.call(",
        "and not ARGV[11] and redis.call(",
        (f"{_FINDINGS}::test_a_waiter_that_is_alone_and_was_passed_over_learns_that_no_message_reaches_it",),
    ),
)
