"""Known bugs of the core that have to do with time: timeouts that are not kept, work in the background, closing."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant, contract

__all__ = ["TIME_MUTANTS"]

_ATTEMPT = "_core/attempt.py"
_CLEANUP = "_core/cleanup.py"
_KEEPER = "_core/keeper.py"
_RENEWALS = "_core/renewals.py"
_RELEASE = "_core/release.py"
_TENURE = "_core/tenure.py"
_VALIDITY = "_core/validity.py"
_WAITING_CALLS = "_core/waiting_calls.py"


def _test(name: str) -> tuple[str, ...]:
    """One test of the core over scripted stores."""
    return (f"tests/unit/test_core_time.py::{name}",)


def _background(name: str) -> tuple[str, ...]:
    """One test of what the core does in the background."""
    return (f"tests/unit/test_core_background.py::{name}",)


TIME_MUTANTS: tuple[Mutant, ...] = (
    # --- time
    Mutant(
        "R7-connect-timeout-longer",
        "acquire(timeout=1) blocks for connect_timeout while the store is down",
        _ATTEMPT,
        "        self._limit = started + opened.connect_timeout if deadline == math.inf else deadline\n",
        "        self._limit = started + opened.connect_timeout\n",
        contract("timeouts:connect_timeout_does_not_lengthen_a_shorter_timeout"),
    ),
    Mutant(
        "R7-connect-timeout-shorter",
        "acquire(timeout=25) gives up after connect_timeout when the store cannot be reached",
        _ATTEMPT,
        "        self._limit = started + opened.connect_timeout if deadline == math.inf else deadline\n",
        "        self._limit = min(started + opened.connect_timeout, deadline)\n",
        contract("timeouts:a_store_that_comes_back_after_connect_timeout_is_waited_for_until_the_timeout"),
    ),
    Mutant(
        "R7-gives-up-early",
        "a call gives up when the next pause does not fit into its timeout",
        _ATTEMPT,
        "            pause = min(pause, self._limit - now)\n",
        "            if pause > self._limit - now:\n                raise failure\n",
        contract("timeouts:a_timeout_is_used_up_while_nobody_listens"),
    ),
    Mutant(
        "R7-until-not-passed",
        "a mute store is waited for as long as its own limit says",
        _ATTEMPT,
        "(subject, limit if limit - sent >= GRACE else min(sent, limit) + GRACE)\n",
        "(subject, math.inf)\n",
    ),
    Mutant(
        "R7-until-renewed",
        "every further try after the deadline has another second",
        _ATTEMPT,
        "limit if limit - sent >= GRACE else min(sent, limit) + GRACE)\n",
        "max(limit, sent + GRACE))\n",
        _test("test_a_second_try_after_the_deadline_gets_only_what_is_left_of_the_grace"),
    ),
    Mutant(
        "R7-release-waits",
        "a release waits for a mute store as long as the store's own limit says",
        _RELEASE,
        "shielded(partial(_attempt, opened, tenure, limit))",
        "shielded(partial(_attempt, opened, tenure, tenure.deadline))",
        contract("timeouts:no_call_waits_for_the_own_limit_of_a_mute_store"),
    ),
    Mutant(
        "S6-withdrawal-forgotten",
        "a claim that was given up while the store was silent is left to its ttl",
        _ATTEMPT,
        "                self._opened.cleanup.add(name, withdraw, now + claim.ttl)\n",
        "                return\n",
    ),
    Mutant(
        "R3-release-forgotten",
        "a release that meets an outage leaves the lock to its ttl",
        _RELEASE,
        "            _go_on_in_the_background(opened, tenure)\n",
        "",
    ),
    Mutant(
        "R3-one-more-try",
        "what is cleaned up in the background is tried once",
        _CLEANUP,
        "                    self._actions.append(action)\n                    await self._pause()\n",
        "                    await self._pause()\n",
    ),
    Mutant(
        "R3-release-after-the-ttl",
        "release() says True although the ttl was over and another had the lock",
        _RELEASE,
        "tenure.perhaps_freed and runtime.now() < tenure.kept_until)\n",
        "tenure.perhaps_freed)\n",
        _test("test_a_release_in_doubt_that_is_answered_after_the_deadline_does_not_claim_to_have_freed"),
    ),
    Mutant(
        "R3-doubt-forgotten",
        "release() says surely not applied although an earlier request of it got no answer",
        _RELEASE,
        "            raise _as_it_stands(tenure, failure)\n",
        "            raise failure\n",
        _test("test_a_release_that_got_no_answer_stays_unknown_when_the_store_cannot_be_reached_any_more"),
    ),
    Mutant(
        "R3-close-does-not-wait",
        "close() does not wait for a release that goes on in the background",
        _CLEANUP,
        "        if worker is not None and not await worker.join(deadline):\n",
        "        if worker is None:\n",
        contract("timeouts:closing_waits_for_a_release_in_the_background"),
    ),
    # --- closing
    Mutant(
        "C1-waiters-sleep-on",
        "a closed client's waiting calls are not woken",
        _WAITING_CALLS,
        "            signal.set()\n",
        "            continue\n",
        contract("life:closing_ends_the_calls_that_wait"),
    ),
    Mutant(
        "C1-warns-of-what-is-over",
        "a closing client warns of a lease as held whose time is over",
        _KEEPER,
        '"its client was closed"), now)\n',
        '"its client was closed"))\n',
        ("tests/faces/test_warnings_of_close.py",),
    ),
    Mutant(
        "C1-waiters-go-on",
        "a waiting call goes on after its client was closed",
        _WAITING_CALLS,
        "        if self._closed:\n            raise ClientClosed\n",
        "",
        contract("life:closing_ends_a_call_that_waits_for_a_store_that_is_away"),
    ),
    Mutant(
        "C1-admitted-while-closing",
        "an acquire that ends during close() gives a lease that nobody renews",
        _KEEPER,
        "            if self._closed:\n                raise ClientClosed(name=tenure.name)\n",
        "",
        contract("life:an_acquire_that_ends_while_its_client_is_closed_gives_no_lease"),
    ),
    # --- renewing
    Mutant(
        "late-confirmation-kept",
        "a renewal confirmed after the loss keeps the lock in the store for another ttl with no holder",
        _RENEWALS,
        "                late.append(answer)\n",
        "                continue\n",
        _test("test_a_renewal_in_the_background_that_is_answered_after_the_deadline_gives_its_grant_back"),
    ),
    Mutant(
        "late-renew-kept",
        "lease.renew() that is answered after the deadline leaves the lock taken for a ttl",
        _RENEWALS,
        "            await self._give_back([answer])\n",
        "            pass\n",
        _test("test_a_renewal_that_is_answered_after_the_deadline_gives_its_grant_back"),
    ),
    Mutant(
        "outage-remembered",
        "the second outage of a lease is not announced, and a pause is reported as an unconfirmed renewal",
        _TENURE,
        "        self.failure, self.confirmed = None, sent\n",
        "        self.confirmed = sent\n",
        (
            "tests/unit/test_tenure.py",
            "tests/unit/test_core_time.py::test_every_outage_of_a_lease_is_announced",
        ),
    ),
    Mutant(
        "storm-of-retries",
        "while the store is down every lease asks 50 times a second",
        _VALIDITY,
        "    return max(SHORTEST_RETRY, ttl / RETRIES_PER_TTL)\n",
        "    return min(SHORTEST_RETRY, ttl / RETRIES_PER_TTL)\n",
        ("tests/unit/test_tenure.py::test_while_the_store_is_down_a_lease_is_renewed_about_fifteen_times_per_ttl",),
    ),
    Mutant(
        "R9-hedged-late",
        "while packets vanish a renewal is tried three times per ttl",
        _VALIDITY,
        "    return max(_between_tries(ttl), min(2 * usual, ttl / RENEWALS_PER_TTL))\n",
        "    return ttl / RENEWALS_PER_TTL\n",
        ("tests/simulation/test_lossy_renewals.py",),
    ),
    Mutant(
        "R9-slow-store-flooded",
        "a store that is only slow gets many times the requests",
        _RENEWALS,
        "        self.usual = min(took, 2 * self.usual) if self.usual else took",
        "        self.usual = 0.0",
        ("tests/simulation/test_lossy_renewals.py",),
    ),
    Mutant(
        "R9-without-end",
        "a store that hangs collects renewals of one lease without end",
        _TENURE,
        "        return now + ahead >= self.due and self.under_way < MOST_UNDER_WAY\n",
        "        return now + ahead >= self.due\n",
        ("tests/unit/test_tenure.py",),
    ),
    # --- at the edges
    Mutant(
        "cancelled-withdrawal-unbounded",
        "an interrupted call without a timeout waits for its withdrawal as long as the store likes",
        _ATTEMPT,
        "await withdraw(min(now, self._deadline) + GRACE)",
        "await withdraw(self._deadline + GRACE)",
        _background("test_an_interrupted_call_without_a_timeout_gives_its_withdrawal_a_second"),
    ),
    Mutant(
        "cleanup-outlives-ttl",
        "what is cleaned up is tried for ever, long after the ttl has done it",
        _CLEANUP,
        "        if now >= action.ends:\n            return True\n",
        "",
        _background("test_the_cleanup_stops_when_the_ttl_has_done_its_work"),
    ),
    Mutant(
        "waits-for-itself",
        "a signal handler that closes the client waits for the call that it interrupted",
        _WAITING_CALLS,
        "all(other == me for",
        "all(other is None for",
        _background("test_a_client_does_not_wait_for_a_call_of_its_own_thread_when_a_signal_handler_closes_it"),
    ),
    Mutant(
        "silence-ignored",
        "a call that gives up waits for its withdrawal although the store is silent",
        _ATTEMPT,
        "                self._silent = True\n                if isinstance",
        "                if isinstance",
        _background("test_a_call_that_gives_up_in_doubt_leaves_its_withdrawal_to_the_cleanup"),
    ),
    # --- written blind, and missed by every test at first
    Mutant(
        "blind-acquire-forgets-doubt",
        "after a lost answer and then a refused connection the caller is told that surely nothing was applied",
        _ATTEMPT,
        "await self._outlast(unknown or error, failures)",
        "await self._outlast(error, failures)",
        _test("test_an_acquire_that_got_no_answer_stays_unknown_when_the_store_cannot_be_reached_any_more"),
    ),
    Mutant(
        "blind-break-interrupts-released",
        "a holder that releases a broken lock inside its block is interrupted and gets on_lost after its release",
        _KEEPER,
        "watcher.on_end(lost)  # not the break",
        "watcher.on_end(tenure.loss)  # not the break",
        _background("test_a_holder_that_releases_a_broken_lock_inside_its_block_is_not_interrupted"),
    ),
    Mutant(
        "blind-cleanup-head-of-line",
        "one clean-up that keeps failing is tried again before all others",
        _CLEANUP,
        "self._actions.append(action)",
        "self._actions.appendleft(action)",
        _background("test_a_chore_that_keeps_failing_does_not_keep_the_others_from_being_done"),
    ),
    Mutant(
        "blind-closed-store-before-cleanup",
        "closing a client drops its connections before what is to be cleaned up",
        "_core/open_client.py",
        "        await self.cleanup.close(min(now + self.close_patience, limit))\n        await self.backend.close()\n",
        "        await self.backend.close()\n        await self.cleanup.close(min(now + self.close_patience, limit))\n",
        _background("test_closing_cleans_up_before_it_lets_go_of_the_connections"),
    ),
    Mutant(
        "blind-waits-in-a-closed-client",
        "a call that begins to wait just after its client was closed waits for its whole timeout",
        _WAITING_CALLS,
        "            self._check_open()\n            self._signals.add(signal)\n",
        "            self._signals.add(signal)\n",
        _background("test_a_call_does_not_begin_to_wait_in_a_client_that_is_closed"),
    ),
    Mutant(
        "blind-renew-now-without-end",
        "lease.renew() on a silent store waits for the store's own limit, long after the lease is over",
        _RENEWALS,
        "await self._backend.renew([tenure.grant], tenure.deadline)",
        "await self._backend.renew([tenure.grant])",
        _test("test_a_renewal_by_hand_does_not_wait_for_a_mute_store_beyond_the_lease"),
    ),
)
