"""Known bugs of the local queue, hunted by the simulation or by named tests."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["LOCAL_QUEUE_MUTANTS"]

_QUEUE = "_core/local_queue.py"
_TESTS = "tests/unit/test_local_queue.py"
_LINGER = "_core/linger.py"
_LINGER_TESTS = "tests/unit/test_linger.py"
_LINGER_STEPS = "tests/unit/test_linger_step_by_step.py"
_EDGES = "tests/unit/test_local_queue_edges.py"

LOCAL_QUEUE_MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "local-fence-reused",
        "a lease that is passed on has the fence of the one before",
        _QUEUE,
        "Grant(grant.claim, grant.fence + 1, ",
        "Grant(grant.claim, grant.fence, ",
    ),
    Mutant(
        "local-trusted-anew",
        "a lease that is passed on is trusted as if the store had just granted it",
        _QUEUE,
        "    tenure.deadline = min(batch.trusted, tenure.ends)\n",
        "",
    ),
    Mutant(
        "local-passed-on-when-over",
        "a lease is passed on although its time is over",
        _QUEUE,
        "                or tenure.state is not HELD\n                or not batch.passes_on(tenure, now)\n",
        "",
    ),
    Mutant(
        "local-newcomers-served",
        "a batch also serves calls that came after its grant, so that other clients wait without end",
        _QUEUE,
        "first if first is not None and first.arrival <= batch.last else None",
        "first",
    ),
    Mutant(
        "local-batch-without-end",
        "a batch goes on for as long as its fences last",
        _QUEUE,
        "self.left > 0 and now < self.until and is_long_enough",
        "self.left > 0 and is_long_enough",
    ),
    Mutant(
        "local-no-delegate",
        "a delegate that leaves the line leaves no other one behind",
        _QUEUE,
        "        queue.failure, queue.delegate = None, other\n",
        "        queue.failure, queue.delegate = None, None\n",
    ),
    Mutant(
        "local-dead-delegate",
        "a delegate that fails stays the delegate",
        _QUEUE,
        "            if queue.delegate is waiter:\n                self._replace(queue, waiter)\n",
        "",
    ),
    Mutant(
        "local-place-not-taken-over",
        "the next delegate does not know the claim whose place it got",
        _QUEUE,
        "                other.call.adopt(delegate.call)\n",
        "                pass\n",
    ),
    Mutant(
        "local-claim-withdrawn-twice-used",
        "a delegate that leaves withdraws the claim that another call holds the lock with",
        _QUEUE,
        "            waiter.call.give_up_claim()\n",
        "",
    ),
    Mutant(
        "local-given-to-one-that-left",
        "a call that was served while it was cancelled keeps the lock from all others",
        "_core/local_acquire.py",
        "        if tenure is not None and not local.pass_on(tenure):\n",
        "        if False:\n",
        (f"{_TESTS}::test_the_last_waiter_that_is_cancelled_when_it_is_served_releases_the_lock",),
    ),
    Mutant(
        "local-busy-delegate-served",
        "the lock is passed on to a delegate whose request is under way, and lies idle until the store answers",
        _QUEUE,
        "        if first is not None and first is self.delegate and self.place is None:\n",
        "        if first is None:\n",
        (f"{_TESTS}::test_a_delegate_whose_request_is_under_way_is_passed_over",),
    ),
    Mutant(
        "local-late-answer-lost",
        "a renewal that was sent before the lease was passed on is not one of the next holder",
        "_core/renewals.py",
        "        return self() if present is None else present()\n",
        "        return self()\n",
        (f"{_TESTS}::test_a_renewal_under_way_is_one_of_the_next_holder",),
    ),
    Mutant(
        "local-outdated-refusal-believed",
        "a renewal under a fence that was passed on meanwhile ends the lease of the next holder",
        "_core/renewals.py",
        "isinstance(answer, Loss) and grant.fence < tenure.grant.fence",
        "False",
        (f"{_TESTS}::test_a_renewal_that_is_refused_for_its_outdated_fence_ends_nothing",),
    ),
    Mutant(
        "local-line-kept-after-failure",
        "those in line wait for a delegate that the store has failed",
        "_core/local_acquire.py",
        "            local.send_away(waiter.queue)\n",
        "            pass\n",
        (f"{_TESTS}::test_a_store_that_fails_the_delegate_is_asked_by_each_of_the_others",),
    ),
    Mutant(
        "linger-released-twice",
        "what lingered is reported as released once more when its client gives everything back",
        "_face/departure.py",
        "                if not tenure.is_parked:",
        "                if True:",
        (f"{_LINGER_TESTS}::test_closing_gives_it_back_without_a_warning_and_never_renews_it_again",),
    ),
    Mutant(
        "linger-fences-used-up",
        "a lock that lingers is handed out under fences that others may get",
        _LINGER,
        "        batch.left, opened.parked[key], tenure.state = batch.left - 1, following, RELEASED\n",
        "        opened.parked[key], tenure.state = following, RELEASED\n",
        (f"{_LINGER_TESTS}::test_used_up_fences_send_it_back_to_the_store",),
    ),
    Mutant(
        "linger-without-end",
        "a lock that lingers does so anew after each release, so that a busy worker keeps others out for ever",
        _LINGER,
        "        batch.until = min(batch.until, now + batch.linger)\n",
        "        batch.until = now + batch.linger\n",
    ),
    Mutant(
        "linger-taken-late",
        "a lock is handed out after its stay, because the keeper had no turn to end it",
        _LINGER,
        "parked.state is HELD and now < batch.until and batch.trusted",
        "parked.state is HELD and batch.trusted",
        (f"{_LINGER_TESTS}::test_it_is_not_handed_out_after_its_time_although_the_keeper_is_late",),
    ),
    Mutant(
        "linger-wanted-here",
        "a lock lingers although another call of its client waits for it",
        _LINGER,
        "        if is_wanted or opened.waiting_calls",
        "        if opened.waiting_calls",
        (f"{_LINGER_TESTS}::test_it_does_not_linger_while_another_call_of_the_client_waits_for_it",),
    ),
    Mutant(
        "linger-taken-when-lost",
        "a lock that was lost while it lingered is handed out",
        _LINGER,
        "    is_there = parked.state is HELD and now",
        "    is_there = now",
        (f"{_LINGER_TESTS}::test_one_that_is_lost_is_not_handed_out_and_no_one_hears_of_it",),
    ),
    Mutant(
        "linger-never-ended",
        "what lingers is never given back by the keeper",
        "_core/keeper.py",
        "            self._end_stays()\n",
        "",
        (f"{_LINGER_TESTS}::test_it_is_given_back_when_its_time_is_over_counted_from_the_first_release",),
    ),
    Mutant(
        "linger-same-fence",
        "the next holder of a lock that lingers has the fence of the one before",
        _LINGER,
        "Grant(grant.claim, grant.fence + 1, ",
        "Grant(grant.claim, grant.fence, ",
    ),
    Mutant(
        "linger-while-leaving",
        "a lock lingers in a client that gives everything back",
        _LINGER,
        "        if is_wanted or opened.waiting_calls.is_leaving or not batch",
        "        if is_wanted or not batch",
        (f"{_LINGER_TESTS}::test_a_lease_released_while_the_client_closes_goes_to_the_store",),
    ),
    Mutant(
        "local-line-without-a-delegate",
        "a call that comes to a line whose batch still lasts, and where nobody waits, waits for ever",
        _QUEUE,
        "            if queue.delegate is None:\n                queue.delegate = waiter\n",
        "",
        (f"{_EDGES}::test_who_comes_to_a_line_without_a_delegate_asks_the_store",),
    ),
    Mutant(
        "local-lines-are-never-forgotten",
        "a client that has met millions of names keeps the lines of all whose last lease was lost or dropped",
        _QUEUE,
        "        if len(self.queues) >= self._sweep_at:\n            self._sweep()\n",
        "",
        (f"{_EDGES}::test_lines_that_nobody_will_come_back_to_are_forgotten_in_time",),
    ),
    Mutant(
        "linger-trusted-too-long",
        "the next holder of a lock that lingers trusts it for as long as its own max_hold allows",
        _LINGER,
        "            parked.deadline = min(batch.trusted, parked.ends)\n",
        "            parked.deadline = parked.ends\n",
        (
            f"{_LINGER_STEPS}::test_a_parked_lease_is_trusted_no_longer_than_the_grant_whatever_max_hold_its_next_holder_has",
        ),
    ),
    Mutant(
        "linger-interrupted-taker-keeps-it",
        "a call that a signal handler interrupts while it takes a parked lease leaves the lock held by nobody",
        _LINGER,
        "        elif call is not None and batch.taken_by is call:",
        "        elif call is None and batch.taken_by is call:",
        (f"{_LINGER_STEPS}::test_a_call_that_is_interrupted_while_it_takes_a_parked_lease_leaves_the_lock_free",),
    ),
    Mutant(
        "linger-interrupted-end",
        "an interruption while a client ends keeps what is parked from being given back",
        _LINGER,
        "    await opened.runtime.shielded(give_back_all)\n",
        "    await give_back_all()\n",
        (f"{_LINGER_STEPS}::test_an_interruption_does_not_keep_what_is_parked_from_being_given_back",),
    ),
)
