"""Known bugs of the Redlock store. They live between several servers, so each names the tests that must see it."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["REDLOCK_MUTANTS"]

_REDLOCK = "_backends/redlock/"
_SCRIPTS = _REDLOCK + "scripts/"
_TALLY = ("tests/stores/redlock/test_redlock_tally.py",)
_CALLS = "tests/stores/redlock/test_redlock_calls.py::"
_NODE = "tests/stores/redlock/test_redlock_scripts.py::"
_NODES = ("tests/stores/redlock/test_redlock_node_states.py",)
_ROUNDS = "tests/stores/redlock/test_redlock_rounds.py::"
_READY = "tests/stores/redlock/test_redlock_readiness.py::"
_DOCTORS = "tests/unit/test_redis_doctors.py::"
_SETUP = "tests/stores/redlock/test_redlock_setup.py::"


REDLOCK_MUTANTS: tuple[Mutant, ...] = (
    # --- votes
    Mutant(
        "redlock-earlier-vote-stays",
        "a vote for an earlier number of the same claim stays on a silent node",
        _REDLOCK + "acquire.py",
        "        return *earlier, proposed\n",
        "        return (proposed,)\n",
        tests=_TALLY,
    ),
    Mutant(
        "redlock-busy-is-in-doubt",
        "while nodes are down, a lock of another claim is in doubt instead of refused",
        _REDLOCK + "acquire.py",
        "        return left - sum(1 for _ in self._with(BUSY)) < self._needed <= left\n",
        "        return False\n",
        tests=_TALLY,
    ),
    Mutant(
        "redlock-lost-answer-decides",
        "an answer that got lost ends a ballot before those that would settle it have come",
        _REDLOCK + "acquire.py",
        "        elif isinstance(answer, (BackendUnavailable, BackendRejected)):\n            no += 1\n",
        "        elif answer is not None:\n            no += 1\n",
        tests=_TALLY,
    ),
    Mutant(
        "redlock-objection-decides",
        "with two nodes down the first objection to a number ends the ballot: a free lock is refused",
        _REDLOCK + "acquire.py",
        "    return bool(objected) and decided(yes, no + objected, nodes) and yes + objected >= majority(nodes)\n",
        "    return bool(objected) and decided(yes, no + objected, nodes)\n",
        tests=_TALLY,
    ),
    # --- scripts
    Mutant(
        "redlock-repair-after-withdrawal",
        "a repair under way re-takes a lock whose claim was withdrawn",
        _SCRIPTS + "repair.lua",
        " or redis.call('EXISTS', KEYS[2]) == 1 then return 0 end\n",
        " then return 0 end\n",
        tests=(_CALLS + "test_repair_that_is_under_way_does_not_take_a_lock_back_that_was_withdrawn",),
    ),
    Mutant(
        "redlock-looking-sets-up",
        "looking at locks through a wrong URL sets the nodes up with its settings",
        _SCRIPTS + "greet.lua",
        "sits_out(KEYS[1], ARGV[1], false)",
        "sits_out(KEYS[1], ARGV[1], true)",
        tests=(_SETUP + "test_looking_writes_nothing_so_a_wrong_url_does_not_set_the_nodes_up",),
    ),
    Mutant(
        "redlock-mark-without-doubt",
        "a withdrawal without doubt leaves a key on every node for a ttl",
        _SCRIPTS + "withdraw.lua",
        "if ARGV[2] ~= '0' then redis.call('SET', KEYS[2], '1', 'PX', ARGV[2]) end\n",
        "redis.call('SET', KEYS[2], '1', 'PX', math.max(1000, tonumber(ARGV[2])))\n",
        tests=(_CALLS + "test_withdrawal_without_doubt_leaves_nothing_on_nodes_that_answer",),
    ),
    Mutant(
        "redlock-break-answered-once",
        "a release of a broken grant that is repeated answers that it was merely gone",
        _SCRIPTS + "release.lua",
        "    redis.call('HSET', KEYS[1], 'w', ARGV[1], 'v', lock[4])\n",
        "",
        tests=(_CALLS + "test_release_of_a_broken_grant_answers_with_the_break_and_frees_what_was_kept",),
    ),
    # --- connections and calls
    Mutant(
        "redlock-no-mark-on-a-node-in-doubt",
        "a vote that arrives after a withdrawal without doubt takes the lock, without a holder",
        _REDLOCK + "backend.py",
        "                if answer != 1 or request.node.may_receive_late(claim.ttl):\n",
        "                if isinstance(answer, Exception):\n",
        tests=(_CALLS + "test_withdrawal_without_doubt_leaves_a_mark_where_a_vote_may_still_arrive",),
    ),
    Mutant(
        "redlock-silent-connection-kept",
        "clean-ups that were sent on a connection which fell silent are never sent again",
        _REDLOCK + "blocking_wire.py",
        "            self._discard_silent()\n",
        "",
        tests=(_CALLS + "test_withdrawal_without_doubt_leaves_a_mark_where_a_vote_may_still_arrive",),
    ),
    Mutant(
        "redlock-connects-without-limit",
        "a thread that has to connect waits for a silent node for as long as the driver would",
        _REDLOCK + "blocking_wire.py",
        "        self._connection = connection = self._wire.take(self.node, self._until)\n",
        "        self._connection = connection = self._wire.take(self.node)\n",
        tests=(_CALLS + "test_connection_for_one_more_thread_is_not_waited_for_too_long",),
    ),
    Mutant(
        "redlock-waits-after-close",
        "a call of another thread goes on waiting for the nodes after the client was closed",
        _REDLOCK + "blocking_wire.py",
        "        for connection in tuple(self._taken):\n            connection.hang_up()\n",
        "",
        tests=(_CALLS + "test_call_that_is_under_way_ends_with_the_client",),
    ),
    Mutant(
        "redlock-close-drops-clean-ups",
        "an asyncio client that is closed right after a failed attempt leaves its votes for their ttl",
        _REDLOCK + "nodes.py",
        "        await self._runtime.sleep(0)  # on asyncio",
        "        # on asyncio",
        tests=(_CALLS + "test_votes_of_an_attempt_that_failed_are_taken_back_although_the_client_is_closed_at_once",),
    ),
    # --- found by planting, each with the test that was missing
    Mutant(
        "redlock-renewal-keeps-since",
        "a grant that took two rounds is believed too short after its renewal",
        _REDLOCK + "renew.py",
        "return grant if grant.since is None else _counted_from_now(grant)",
        "return grant",
        tests=_TALLY,
    ),
    Mutant(
        "redlock-dead-clocks-propose",
        "clocks of nodes that are down take part in the proposal",
        _REDLOCK + "nodes.py",
        "if node.offset is not None and node.is_up]",
        "if node.offset is not None]",
        tests=_NODES,
    ),
    Mutant(
        "redlock-clean-up-sent-once",
        "clean-ups are forgotten when the connection breaks while they are sent again",
        _REDLOCK + "node.py",
        "            for call in calls:\n                self.undelivered.keep(call)\n            raise\n",
        "            raise\n",
        tests=_NODES,
    ),
    Mutant(
        "redlock-lists-one-page",
        "a list ends after the first page of keys",
        _REDLOCK + "inspect.py",
        '            if cursor == b"0":\n                return found\n',
        "            return found\n",
        tests=(_NODE + "test_all_pages_of_a_list_are_read",),
    ),
    Mutant(
        "redlock-raised-fence-not-learned",
        "nodes that lost a raised fence are not taught it by a client that learned of it",
        _REDLOCK + "backend.py",
        "            self._ahead[key] = number\n",
        "            pass\n",
        tests=(_NODE + "test_client_that_learned_of_a_raised_fence_teaches_nodes_that_do_not_know_it",),
    ),
    Mutant(
        "redlock-withdrawn-number-is-free",
        "a repair under way takes a lock back that was withdrawn without doubt",
        _SCRIPTS + "withdraw.lua",
        "  redis.call('HSET', KEYS[1], 'c', text(math.max(tonumber(lock[3]), tonumber(lock[2]) + 1)))\n",
        "",
        tests=(_NODE + "test_number_of_a_withdrawn_claim_is_used_up_on_the_node_that_had_it",),
    ),
    Mutant(
        "redlock-votes-for-broken",
        "a claim whose grant was broken gets it again when it is sent again",
        _SCRIPTS + "vote.lua",
        "  if lock[1] ~= owner or lock[5] then\n",
        "  if lock[1] ~= owner then\n",
        tests=(_NODE + "test_broken_grant_is_not_voted_for_again",),
    ),
    Mutant(
        "blind-redlock-late-vote",
        "a release that finds nothing bars no vote that arrives later, which then locks the node without a holder",
        _SCRIPTS + "release.lua",
        "if tonumber(lock[5] or '0') < above then",
        "if reply ~= 0 and tonumber(lock[5] or '0') < above then",
        tests=(_NODE + "test_release_that_finds_nothing_bars_a_vote_and_a_repair_that_arrive_later",),
    ),
    Mutant(
        "blind-redlock-revoked-number-forgotten",
        "a revoked number may be granted again while its release can still arrive: the lock is freed under its holder",
        _REDLOCK + "backend.py",
        "self._revoked.note(claim.owner, number, now, now + claim.ttl + SILENCE_LIMIT)",
        "self._revoked.note(claim.owner, number, now, now + SILENCE_LIMIT)",
        tests=(_ROUNDS + "test_number_that_was_revoked_is_not_granted_as_long_as_its_release_may_arrive",),
    ),
    Mutant(
        "blind-redlock-doctor-too-patient",
        "the doctor finds nothing wrong with a node that usually answers just before it is given up",
        _REDLOCK + "doctor.py",
        "    if usual < limit / 2:\n",
        "    if usual < limit:\n",
        tests=(_DOCTORS + "test_a_node_that_usually_answers_late_is_found_before_it_is_given_up",),
    ),
    Mutant(
        "redlock-probes-for-too-long",
        "a client that is not used any more goes on trying nodes that are gone",
        _REDLOCK + "nodes.py",
        "idle = self._runtime.now() - self._used > IDLE",
        "idle = self._runtime.now() - self._used > 60 * IDLE",
        tests=(_READY + "test_client_that_rests_is_not_probed_for",),
    ),
)
