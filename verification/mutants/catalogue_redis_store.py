"""Known bugs that named tests must see: redis store."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["REDIS_STORE_MUTANTS"]

_SCRIPTS = "_backends/redis/scripts/"
_ACQUIRE = _SCRIPTS + "acquire.lua"
_QUEUE = _SCRIPTS + "queue.lua"
_RELEASE = _SCRIPTS + "release.lua"
_RENEW = _SCRIPTS + "renew.lua"
_WITHDRAW = _SCRIPTS + "withdraw.lua"
_BACKEND = "_backends/redis/backend.py"
_BLOCKING = "_backends/redis/blocking_wire.py"
_OPENINGS = "kit/openings.py"
_ASYNCIO = "_backends/redis/asyncio_wire.py"
_ROUTER = "_backends/redis/router.py"
_TOPOLOGY = "_backends/redis/topology.py"
_WIRE = "_backends/redis/wire.py"

_NOTIFICATIONS = "tests/stores/redis/test_redis_notifications.py"
_PORTS = "tests/simulation/test_redis_ports.py"
_VERBS = "tests/stores/redis/test_redis_verbs.py"
_RULES = "tests/simulation/test_redis_scripts.py"
_UNIT = "tests/stores/redis/test_redis_topology.py"
_UNTIL = "tests/stores/redis/test_redis_until.py"
_CLOSING = "tests/stores/redis/test_redis_closing.py"

REDIS_STORE_MUTANTS: tuple[Mutant, ...] = (
    # --- what no test saw
    Mutant(
        "redis-reader-deletes",
        "a shared lease may delete values",
        "fencing/redis.py",
        '        self._require_exclusive()\n        if not keys:\n            raise ConfigurationError("delete needs',
        '        if not keys:\n            raise ConfigurationError("delete needs',
        tests=("tests/fencing/test_redis_values.py::test_lease_of_a_reader_writes_and_deletes_nothing",),
    ),
    Mutant(
        "redis-stale-sentinel",
        "after a fail-over a Sentinel that was cut off sends clients to the old primary: two holders",
        _TOPOLOGY,
        "    _, primary = max(answers, key=lambda answer: answer[0])\n",
        "    _, primary = answers[0]\n",
        tests=(_UNIT,),
    ),
    Mutant(
        "redis-raised-fence-lifts-all",
        "a fence raised by hand for one name lifts the fences of every name of that client for ever",
        _BACKEND,
        "        if fence > self._highest and fence < time_ms * 1000 + HOUR_US:\n",
        "        if fence > self._highest:\n",
        tests=(f"{_PORTS}::test_fence_that_was_raised_for_one_name_does_not_lift_those_of_others",),
    ),
    Mutant(
        "redis-old-server-not-held-off",
        "strict mode: a known lock on a promoted old server is granted without hold-off",
        _ACQUIRE,
        "    til = known[1] and now + off or now + off - age\n",
        "    til = now + off - age\n",
        tests=(_PORTS,),
    ),
    Mutant(
        "redis-dead-waiter-whole-ttl",
        "a waiter that missed its re-checks gets the whole ttl: a dead one blocks the lock for that long",
        _QUEUE,
        "if tonumber(expires) - now < tonumber(window) then granted =",
        "if false then granted =",
        tests=(_PORTS,),
    ),
    # --- calls that end in time
    Mutant(
        "redis-sentinel-uses-all-time",
        "the first silent Sentinel or node uses up the time of all",
        _TOPOLOGY,
        "    return min(DISCOVERY_TIMEOUT, max(left / parts, LEAST_SHARE))\n",
        "    return max(left, LEAST_SHARE)\n",
        tests=(_UNIT,),
    ),
    Mutant(
        "redis-answer-awaited-too-long",
        "a blocking call waits for its answer as long as the store is given",
        _BLOCKING,
        "            limit = stepped(timeout, left)\n",
        "            limit = timeout\n",
        tests=(f"{_UNTIL}::test_call_ends_in_time_when_its_answer_does_not_come[threads-release]",),
    ),
    Mutant(
        "redis-tcp-connection-awaited",
        "a blocking call waits for its connection as long as the store is given",
        _OPENINGS,
        "(opening.over, None if until == math.inf else until)",
        "(opening.over, None)",
        tests=(f"{_UNTIL}::test_call_ends_in_time_when_there_is_no_connection[threads-connecting-release]",),
    ),
    Mutant(
        "redis-hasty-caller-kills-link",
        "a task with little time costs all others the shared connection",
        _ASYNCIO,
        "        self._pending.append((answer, count, deadline, now + timeout, now))\n",
        "        self._pending.append((answer, count, deadline, deadline, now))\n",
        tests=(f"{_UNTIL}::test_caller_with_little_time_does_not_cost_others_their_answers",),
    ),
    Mutant(
        "redis-timeout-zero-is-for-ever",
        "a call with hardly any time left waits for ever, because a socket takes 0 for that",
        _WIRE,
        "    return max(left, SHORTEST) if left < HASTY else",
        "    return round(left, 3) if left < HASTY else",
        tests=(_UNIT,),
    ),
    Mutant(
        "redis-acks-use-all-time",
        "replicas are waited for until the call has no time left to undo the grant",
        _ROUTER,
        "        patience = min(patience, max(0.0, self.wire.left(until)) / 2)\n",
        "        patience = min(patience, max(0.0, self.wire.left(until)))\n",
        tests=(f"{_UNTIL}::test_replicas_that_do_not_acknowledge_are_not_waited_for_beyond_the_call",),
    ),
    Mutant(
        "redis-close-leaves-callers",
        "a thread that waits for an answer goes on waiting when its client is closed",
        _BLOCKING,
        "                connection.interrupt()\n",
        "                pass\n",
        tests=(f"{_CLOSING}::test_call_that_waits_for_an_answer_ends_when_its_client_is_closed[threads--try_acquire]",),
    ),
    Mutant(
        "redis-closed-as-unknown",
        "a task whose client is closed gets an unknown outcome, and tries again",
        _ASYNCIO,
        '        self._fail("", closed=True)\n',
        '        self._fail("closed")\n',
        tests=(f"{_CLOSING}::test_call_that_waits_for_an_answer_ends_when_its_client_is_closed[asyncio--release]",),
    ),
    # --- what is left in the store, and what is answered
    Mutant(
        "redis-mark-without-doubt",
        "every acquire that timed out leaves a key for a ttl",
        _BACKEND,
        '        mark = _milliseconds(claim.ttl) if doubt else "0"\n',
        "        mark = _milliseconds(claim.ttl)\n",
        tests=(_PORTS,),
    ),
    Mutant(
        "redis-note-stays",
        "a withdrawal without doubt leaves the note of a break",
        _WITHDRAW,
        "  redis.call('DEL', KEYS[7])\n",
        "",
        tests=(_PORTS,),
    ),
    Mutant(
        "redis-break-untold-by-release",
        "a release of a grant that was broken at once loses the reason",
        _RELEASE,
        "  return why and {2, why} or 0\n",
        "  return 0\n",
        tests=(_PORTS,),
    ),
    Mutant(
        "redis-break-forgotten-by-withdrawal",
        "a release that is sent again after the withdrawal of its claim loses the reason of a break",
        _WITHDRAW,
        "elseif mark and string.sub(mark, 1, 1) == 'b' then\n",
        "elseif false then\n",
        tests=(f"{_PORTS}::test_release_that_is_sent_again_after_a_withdrawal_is_answered_with_the_break",),
    ),
    Mutant(
        "redis-break-of-another-grant",
        "a grant that is over is answered with the reason why a later one of the same claim was broken",
        _SCRIPTS + "break_note.lua",
        "  if why then return tonumber(broken_fence) <= tonumber(fence) and why end\n",
        "  if why then return why end\n",
        tests=(f"{_PORTS}::test_grant_that_is_over_is_not_answered_with_the_break_of_a_later_one",),
    ),
    Mutant(
        "redis-late-copy-while-kept",
        "a late copy of a claim that was released and is kept for its min_hold gets a place in the queue",
        _ACQUIRE,
        "  if cooling_grant() == owner then return refused() end\n",
        "",
        tests=(f"{_PORTS}::test_late_copy_of_a_claim_that_was_released_and_is_kept_is_refused",),
    ),
    Mutant(
        "redis-reason-of-the-grant-before",
        "a lock that an earlier version released is shown as broken, with the reason of the grant before",
        _QUEUE,
        "  if fence ~= alone_fence then return nil end\n",
        "",
        tests=(f"{_PORTS}::test_release_by_an_earlier_version_does_not_show_the_break_of_the_grant_before",),
    ),
    Mutant(
        "redis-kind-of-the-dead",
        "waiters that are dead make a claim of another kind a mode conflict",
        _ACQUIRE,
        "  if not holder then -- waiters that are dead do not use the name\n    forget_the_dead()\n",
        "  if not holder then\n",
        tests=(f"{_PORTS}::test_waiters_that_are_dead_do_not_decide_what_a_name_is_used_for",),
    ),
    Mutant(
        "redis-full-server-ends-shares",
        "a server without memory does not renew what several share",
        _RENEW,
        "    redis.call('ZREM', KEYS[3], '') --",
        "    --",
        tests=(_PORTS,),
    ),
    Mutant(
        "redis-full-server-drops-places",
        "a server without memory does not keep the place of a waiter",
        _ACQUIRE,
        "  write_first() --",
        "  --",
        tests=(_PORTS,),
    ),
    Mutant(
        "redis-full-server-min-hold",
        "a server without memory refuses the release of one of several holders that has a min_hold",
        _RELEASE,
        "  write_first()\n",
        "",
        tests=(_PORTS,),
    ),
    Mutant(
        "redis-withdrawal-hides-the-vanished",
        "a waiter that is let in by the withdrawal of another does not learn that the last holder vanished",
        _WITHDRAW,
        "notice_the_end_of_grants()\n",
        "",
        tests=(_PORTS,),
    ),
    Mutant(
        "redis-late-connection-lost",
        "a connection that came too late for its caller is neither kept nor closed",
        _OPENINGS,
        "                opening.abandoned = connection is None\n",
        "                opening.abandoned = False\n",
        tests=(f"{_UNTIL}::test_connection_that_came_too_late_for_its_caller_serves_the_next",),
    ),
    Mutant(
        "redis-release-without-patience",
        "a release is refused while its slot is being moved",
        _ROUTER,
        '            elif code == "TRYAGAIN" and self._runtime.now() + SLOT_PAUSE < moved_by:\n',
        '            elif code == "TRYAGAIN" and moved_by < 0:\n',
        tests=("tests/stores/redis/test_redis_slots.py::test_release_waits_for_a_slot_on_the_move",),
    ),
    Mutant(
        "redis-imports-cross",
        "blocking and asyncio clients first used at the same time fail with errors of Python's import system",
        _WIRE,
        "        load_driver()\n        classes =",
        "        classes =",
        tests=("tests/stores/redis/test_redis_first_use.py",),
    ),
    Mutant(
        "blind-redis-dead-subscription",
        "a subscription that died silently is never replaced: all later waiters get their locks late",
        _BACKEND,
        "            if reply[5] and waiter.handed is None:\n                self._listener.verify(keys)\n",
        "",
        tests=(_NOTIFICATIONS, "-k", "missed_a_hand_over"),
    ),
    Mutant(
        "blind-redis-lost-connection",
        "when the connection for messages ends, the waiters are not woken to subscribe anew",
        "_backends/redis/notifications.py",
        "        self._drop(node, source)\n        for waiter in list(self._waiters.values()):\n"
        "            waiter.signal.set()\n\n    def _drop(",
        "        self._drop(node, source)\n\n    def _drop(",
        tests=(_NOTIFICATIONS, "-k", "is_woken_when_the_connection"),
    ),
    Mutant(
        "blind-redis-moved-without-host",
        "a cluster that leaves out its host name in MOVED cannot be used after a slot has moved",
        _ROUTER,
        "node = Node(host or sender.host, int(port))",
        "node = Node(host, int(port))",
        tests=(f"{_UNIT}::test_slot_that_moved_to_a_server_without_a_name_is_on_the_host_that_said_so",),
    ),
    Mutant(
        "blind-redis-lost-node-kept",
        "after a fail-over a client goes on asking the old primary",
        _ROUTER,
        "            (reply,) = await self.wire.exchange(node, call.short, 1, timeout, until)\n"
        "        except (BackendUnavailable, OutcomeUnknown):\n            topology.lost(node)\n",
        "            (reply,) = await self.wire.exchange(node, call.short, 1, timeout, until)\n"
        "        except (BackendUnavailable, OutcomeUnknown):\n",
        tests=(f"{_UNIT}::test_server_that_does_not_answer_is_looked_for_anew",),
    ),
    Mutant(
        "redis-min-hold-of-the-claim-before",
        "a claim with another min_hold than the one before it on the same name is sent with that of the one before",
        _BACKEND,
        "claim.holder, claim.capacity, claim.min_hold, address, len(owner))",
        "claim.holder, claim.capacity, address, len(owner))",
        tests=(f"{_VERBS}::test_claim_that_says_something_else_about_the_same_name_is_not_sent_as_the_one_before",),
    ),
    Mutant(
        "redis-renewed-hand-over-counts-from-its-message",
        "a grant that came by message counts from that message for ever: its renewals do not prolong it",
        _BACKEND,
        "    return grant if grant.since is None and grant.ttl == grant.claim.ttl else _whole(grant)\n",
        "    return grant if grant.ttl == grant.claim.ttl else _whole(grant)\n",
        tests=(f"{_VERBS}::test_renewals_are_answered_one_by_one",),
    ),
    Mutant(
        "redis-told-of-the-vanished-for-ever",
        "after a holder vanished each later one is told so, although all of them released",
        _ACQUIRE,
        "redis.call('HDEL', KEYS[2], 'l', 'b')",
        "redis.call('HDEL', KEYS[2], 'b')",
        tests=(f"{_RULES}::test_break_at_once_leaves_its_reason_for_as_long_as_the_grant_would_have_lasted",),
    ),
    Mutant(
        "redis-broken-and-kept-under-two-fences",
        "the release of a broken lock that is kept for its min_hold, sent again, says that the lock is another's",
        "_backends/redis/scripts/release.lua",
        "redis.call('HSET', S, 'g', fence, 'c', fence",
        "redis.call('HSET', S, 'c', fence",
        tests=(
            "tests/simulation/test_redis_scripts.py::test_release_of_a_broken_grant_that_is_kept_for_min_hold_is_answered_alike_again",
        ),
    ),
)
