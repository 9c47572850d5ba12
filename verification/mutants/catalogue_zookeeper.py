"""Known bugs that named tests must see: zookeeper."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["ZOOKEEPER_MUTANTS"]

_HERE = "_backends/zookeeper/"
_SESSIONS = "tests/stores/zookeeper/test_zookeeper_sessions.py::"
_RIGHTS = "tests/stores/zookeeper/test_zookeeper_rights.py::"
_SILENCE = "tests/stores/zookeeper/test_zookeeper_silence.py::"
_ENDS = "tests/stores/zookeeper/test_zookeeper_ends.py::"

ZOOKEEPER_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "zk-unconfirmed-for-a-ttl",
        "a renewal that one session did not confirm is valid for a whole ttl",
        f"{_HERE}renew.py",
        "        return Grant(grant.claim, grant.fence, min(session.validity.ttl, valid_until - started))\n",
        "        return Grant(grant.claim, grant.fence, session.validity.ttl)\n",
        (f"{_SILENCE}test_a_renewal_that_one_session_did_not_confirm_promises_no_more_than_before",),
    ),
    Mutant(
        "zk-floor-kept-when-suspended",
        "a fence raised while the connection was lost is not known afterwards: later fences are too low",
        f"{_HERE}session.py",
        "        self._suspended_at = self._now()\n        self.fence_floor = None\n",
        "        self._suspended_at = self._now()\n",
        (
            f"{_SESSIONS}test_a_lost_connection_takes_the_known_floor_away",
            f"{_SILENCE}test_a_fence_raised_while_the_connection_was_lost_is_known_afterwards",
        ),
    ),
    Mutant(
        "zk-lost-session-resumed",
        "a session that is lost here is kept alive by new connections when only answers vanish",
        f"{_HERE}session.py",
        "            return now - self._suspended_at > self.silence_limit\n",
        "            return False\n",
        (f"{_SESSIONS}test_a_session_is_lost_when_its_validity_is_over_and_no_server_answers",),
    ),
    Mutant(
        "zk-lost-session-not-closed",
        "a session that is given up while answers vanish blocks the next holder for another session timeout",
        f"{_HERE}wire.py",
        "        if session[0]:\n            close_session(",
        "        if not session[0]:\n            close_session(",
        (f"{_SILENCE}test_a_holder_that_no_answer_reaches_is_succeeded_within_two_ttls",),
    ),
    Mutant(
        "zk-place-lost-after-a-pause",
        "a process that was paused gives its session up before a server could answer: its waiters lose their places",
        f"{_HERE}session.py",
        "            return now - self._suspended_at > self.silence_limit\n",
        "            return True\n",
        (f"{_SESSIONS}test_a_paused_process_has_the_time_of_one_answer_to_find_its_session",),
    ),
    Mutant(
        "zk-reconnection-counts-from-now",
        "the validity of a session counts from a moment at which nothing was sent",
        f"{_HERE}session.py",
        "        self.validity.reconnected(self._suspended_at)\n",
        "        self.validity.reconnected(self._now())\n",
        (f"{_SESSIONS}test_a_reconnection_counts_from_when_the_connection_was_lost",),
    ),
    Mutant(
        "zk-bounds-of-first-server",
        "after a move to a server with a lower bound the lease is valid for longer than its session lives",
        f"{_HERE}session.py",
        "        if self.state is State.OPENING or timeout < self.validity.timeout:",
        "        if self.state is State.OPENING:",
        (f"{_SESSIONS}test_the_bounds_of_another_server_only_shorten_the_validity",),
    ),
    Mutant(
        "zk-note-session-is-idle",
        "the session of a note for a broken holder makes room for another ttl: the reason of the break is lost",
        f"{_HERE}session.py",
        "        if self.nodes or self.unwanted or self.break_notes:\n",
        "        if self.nodes or self.unwanted:\n",
        (f"{_SESSIONS}test_a_session_with_a_note_for_a_broken_holder_is_not_idle",),
    ),
    Mutant(
        "zk-note-ends-with-operator",
        "the reason of a break is lost when the operator's command ends",
        f"{_HERE}session_worker.py",
        "    if session.break_notes:\n        return True\n",
        "",
        (f"{_ENDS}test_the_reason_of_a_break_outlives_the_operators_client",),
    ),
    Mutant(
        "zk-note-of-another",
        "a reader whose node is gone is answered with the break of another reader",
        f"{_HERE}release.py",
        '        prefix = f"{BREAK_NOTE}-{node.id}-"\n',
        '        prefix = f"{BREAK_NOTE}-"\n',
        (f"{_ENDS}test_the_note_for_another_holder_of_the_same_name_is_not_ours",),
    ),
    Mutant(
        "zk-break-not-answered",
        "the release of a broken grant answers that it was freed as usual",
        f"{_HERE}release.py",
        "        return deleted if node.broken is None else Loss(LossReason.BROKEN, node.broken)\n",
        "        return deleted\n",
        (f"{_ENDS}test_the_release_of_a_broken_grant_answers_the_break_and_frees_the_lock",),
    ),
    Mutant(
        "zk-hand-over-undated",
        "a lock that was handed over is valid for a ttl from now, longer than its session was confirmed for",
        f"{_HERE}acquire.py",
        "validity.ttl, None if since >= started else since)\n",
        "validity.ttl, None)\n",
        (f"{_SILENCE}test_a_grant_after_a_wait_is_valid_for_no_longer_than_its_session",),
    ),
    Mutant(
        "zk-waiters-sleep-on",
        "after a lost connection a waiter looks again only a third of its ttl later",
        f"{_HERE}session.py",
        "        for node in list(self.nodes.values()):\n            node.signal.set()\n"
        "        self.wake()\n\n    def _on_state(",
        "        self.wake()\n\n    def _on_state(",
        (f"{_SILENCE}test_a_waiter_looks_again_as_soon_as_its_connection_is_back",),
    ),
    Mutant(
        "zk-fence-of-first-waiter",
        "a fence is raised to what the first waiter already has, so that its grant is not higher",
        f"{_HERE}inspect.py",
        "min(lowest, first - 1)",
        "min(lowest, first)",
        (f"{_SILENCE}test_a_fence_that_equals_a_waiters_own_is_raised_above_it",),
    ),
    Mutant(
        "zk-until-while-connecting",
        "a call waits for a connection for as long as the store likes",
        f"{_HERE}calls.py",
        "await self.wait(session.settled, min(self._runtime.now() + CONNECT_TIMEOUT, until))\n",
        "await self.wait(session.settled, self._runtime.now() + CONNECT_TIMEOUT)\n",
        (f"{_SILENCE}test_a_call_that_sent_nothing_is_unavailable_when_its_time_is_over",),
    ),
    Mutant(
        "zk-until-while-answering",
        "a call waits for an answer for as long as the store likes",
        f"{_HERE}calls.py",
        "        return min(self._runtime.now() + timeout, until)\n",
        "        return self._runtime.now() + timeout\n",
        (f"{_SILENCE}test_every_call_on_a_mute_ensemble_ends_when_its_caller_has_no_time_left",),
    ),
    Mutant(
        "zk-mark-without-doubt",
        "a withdrawal without doubt refuses its owner for a ttl",
        f"{_HERE}release.py",
        "        if doubt:\n            self._registry.withdraw(",
        "        if doubt or not doubt:\n            self._registry.withdraw(",
        (f"{_ENDS}test_a_withdrawal_without_doubt_leaves_no_node_and_no_mark",),
    ),
    Mutant(
        "zk-wait-of-a-closed-client",
        "a call that begins to wait while its client is closed waits to its own limit",
        f"{_HERE}calls.py",
        "            if not self.is_closed:  # read after the entry is made",
        "            if True:  # read after the entry is made",
        (f"{_SESSIONS}test_a_wait_that_begins_while_its_client_is_closed_ends_at_once",),
    ),
    Mutant(
        "zk-closed-waiter-in-queue",
        "a waiter of a closed client stays in the queue as long as another grant keeps the session open",
        f"{_HERE}pool.py",
        "        for session in list(self._sessions.values()):\n            session.give_up_waiters()\n",
        "",
        (f"{_ENDS}test_a_claim_that_waits_when_its_client_is_closed_leaves_no_node",),
    ),
    Mutant(
        "zk-refused-claim-stays",
        "a claim that meets a node of another recipe is refused, and its own node stays in the way for a ttl",
        f"{_HERE}acquire.py",
        "        except BackendUnavailable:\n            raise\n        except Exception:\n",
        "        except (BackendUnavailable, BackendRejected):\n            raise\n        except Exception:\n",
        (f"{_RIGHTS}test_a_lock_of_kazoo_on_the_same_path_is_refused_and_seen_by_the_doctor",),
    ),
    Mutant(
        "zk-late-node-stays",
        "a node that is made after its claim was given up stays until its session ends",
        f"{_HERE}claim_node.py",
        "        if not self.wanted:  # it may have been given up for good",
        "        if False:  # it may have been given up for good",
        (f"{_SESSIONS}test_a_node_that_is_made_after_its_claim_was_given_up_for_good_is_deleted",),
    ),
    Mutant(
        "zk-claim-outlives-its-time",
        "the lock of a program that hangs is freed a session timeout after its ttl",
        f"{_HERE}session.py",
        "            if node.wanted and node.expires <= now:\n",
        "            if node.wanted and node.expires + self.validity.timeout <= now:\n",
        (f"{_SESSIONS}test_a_claim_is_given_up_as_soon_as_its_time_is_over_and_not_before",),
    ),
    Mutant(
        "zookeeper-revives-broken",
        "a claim that is sent again after an operator broke its grant is granted and extended",
        "_backends/zookeeper/acquire.py",
        "        await self._releaser.read_own(node, until)\n",
        "",
        ("tests/contract/test_zookeeper.py", "-k", "a_broken_grant_is_not_granted_again"),
    ),
    Mutant(
        "blind-zookeeper-adopts-older",
        "after a lost session the node of the old one is adopted, which vanishes soon",
        "_backends/zookeeper/acquire.py",
        "if stat is not None and stat.ephemeralOwner == session.id:",
        "if stat is not None:",
        (
            "tests/stores/zookeeper/test_zookeeper_ends.py::test_a_node_that_an_older_session_made_for_the_same_claim_is_not_adopted",
        ),
    ),
    Mutant(
        "blind-zookeeper-longest-session",
        "when a client has many ttls, a lock with a short one lives on its longest session",
        "_backends/zookeeper/pool.py",
        "return self._sessions[min(longer)]",
        "return self._sessions[max(longer)]",
        ("tests/stores/zookeeper/test_zookeeper_pieces.py", "-k", "next_longer_one"),
    ),
    Mutant(
        "zookeeper-follows-over-a-gap",
        "a claim overtakes those of other sessions that came between it and the last one of its own",
        "_backends/zookeeper/claim_node.py",
        "        if self.sequence != last.sequence + 1:\n",
        "        if self.sequence < last.sequence:\n",
        ("tests/stores/zookeeper/test_zookeeper_queue.py", "-k", "two_sessions_in_turns_keep_their_order"),
    ),
    Mutant(
        "zookeeper-follows-a-node-that-is-gone",
        "after a parent was removed by hand, a claim is granted beside the holder in the new one",
        "_backends/zookeeper/claim_node.py",
        "if reply.error is not None or reply.value is None or reply.value.czxid != last.czxid:",
        "if reply.error is not None:",
        ("tests/stores/zookeeper/test_zookeeper_queue.py", "-k", "whose_parent_was_made_anew"),
    ),
    Mutant(
        "zookeeper-a-waiter-that-gives-up-has-held",
        "a waiter that gives up lets in the one behind it beside the holder",
        "_backends/zookeeper/claim_node.py",
        "            if predecessor.fence is not None:  # so all before it were gone\n",
        "            if True:\n",
        ("tests/stores/zookeeper/test_zookeeper_queue.py", "-k", "gives_up_does_not_let_in"),
    ),
    Mutant(
        "zookeeper-crowd-lists-the-queue",
        "every claim of a crowd lists the queue again, so that a grant costs more the more wait",
        "_backends/zookeeper/session.py",
        "        return last if are_exclusive and last.state is ClaimState.PRESENT and last.wanted else None\n",
        "        return None\n",
        ("tests/stores/zookeeper/test_zookeeper_queue.py", "-k", "lists_the_queue_no_more_often"),
    ),
    Mutant(
        "zookeeper-failed-deletion-is-final",
        "a node whose deletion failed once is not deleted again: the lock stays taken until the session is given up",
        "_backends/zookeeper/session_worker.py",
        "def _found_or_not(node: ClaimNode, reply: Reply) -> None:\n"
        '    """After a doubt, on the connection\'s thread: the node is there, or was never made and never will be.\n\n'
        "    An older session may have left another one for the same claim. All of them are deleted, in any order.\n"
        '    """\n'
        "    node.deleting = False\n",
        "def _found_or_not(node: ClaimNode, reply: Reply) -> None:\n",
        ("tests/stores/zookeeper/test_zookeeper_worker.py", "-k", "after_a_doubt"),
    ),
    Mutant(
        "zookeeper-one-silent-session-fails-all",
        "a session that does not answer keeps the grants of all others from being renewed",
        "_backends/zookeeper/renew.py",
        "if failures and all(failures):",
        "if any(failures):",
        ("tests/stores/zookeeper/test_zookeeper_holders.py", "-k", "does_not_keep_the_others"),
    ),
)
