"""Known bugs of the local queue, hunted by the simulation or by named tests."""

from __future__ import annotations

from verification.mutants.catalogue import Mutant

__all__ = ["LOCAL_QUEUE_MUTANTS"]

_QUEUE = "_core/local_queue.py"
_TESTS = "tests/unit/test_local_queue.py"

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
)
